// The kernels of src/kernels on the host, in grid and block form, against plain loops in double: every type, lengths
// and addresses that are no multiples of a vector, grids that go on in strides, and every order of threads.
#include <array>
#include <tuple>
#include <utility>

#include "src/kernels/attention/device_attention_cuda.h"
#include "src/kernels/dropout_cuda.h"
#include "src/kernels/field_error_cuda.h"
#include "src/kernels/gelu_cuda.h"
#include "src/kernels/layer_norm_cuda.h"
#include "tests/support/emulator/kernel_test.h"

using namespace vit_hybrid;
using namespace vit_hybrid::kernels;
using namespace vit_hybrid::testing;

namespace {

constexpr int kMultiprocessors = 2;
constexpr int64_t kRowsOfSample = 2;
// More than the emulator's grids have along y.
constexpr int64_t kManySamples = 35;
constexpr int64_t kManyRows = 32 * kManySamples;  // a block takes 32 at a time

struct Rows {
  int64_t rows, features, shift;
};

// By warps, by blocks, longer than registers hold; of no whole vectors; at odd addresses.
std::vector<Rows> norm_rows() {
  if (kByThreads) return {{45, 96, 0}, {2, 33, 0}, {1, 4104, 0}};
  return {{1, 8, 0},    {9, 96, 0},   {5, 768, 0},  {3, 1024, 0}, {9, 1280, 0}, {9, 1288, 0},
          {3, 2056, 0}, {3, 4096, 0}, {5, 4104, 0}, {9, 33, 0},   {3, 1, 0},    {4, 1281, 0},
          {3, 768, 1},  {2, 1400, 3}, {5, 5001, 0}, {2, 4096, 1}, {93, 192, 0}, {3, 520, 4}};
}

// What is normed: x, or its sum with a branch, whose samples have factors with stochastic depth alone.
enum class Branch { kNone, kPlain, kScaled };

template <class T>
struct NormArrays {
  using F = ComputeType<T>;
  explicit NormArrays(const Rows& shape)
      : rows(shape.rows),
        features(shape.features),
        x(rows * features, shape.shift),
        branch(rows * features, shape.shift),
        y(rows * features, shape.shift),
        dy(rows * features, shape.shift),
        residual_gradient(rows * features, shape.shift),
        dx(rows * features, shape.shift),
        weight(features),
        bias(features),
        mean(rows),
        rstd(rows),
        scales(rows),
        weight_gradient(features),
        bias_gradient(features),
        added_bias_gradient(features) {
    fill(x, 1, 2.0);
    fill(weight, 2);
    fill(bias, 3);
    fill(dy, 4);
    fill(residual_gradient, 5);
    fill(scales, 6);
  }

  NormForward<T> forward(Branch with) const {
    return {x.data(),
            with != Branch::kNone ? branch.data() : nullptr,
            with == Branch::kScaled ? scales.data() : nullptr,
            weight.data(),
            bias.data(),
            y.data(),
            mean.data(),
            rstd.data(),
            rows,
            kRowsOfSample,
            features,
            F(1e-6)};
  }
  NormBackward<T> backward(bool has_branch) const {
    return {dy.data(),     (has_branch ? branch : x).data(),
            mean.data(),   rstd.data(),
            weight.data(), has_branch ? residual_gradient.data() : nullptr,
            dx.data(),     rows,
            features};
  }

  int64_t rows, features;
  GuardedArray<T> x, branch, y, dy, residual_gradient, dx, weight, bias;
  GuardedArray<F> mean, rstd, scales;
  GuardedArray<T> weight_gradient, bias_gradient, added_bias_gradient;
};

// What a pass over rows gives, from the values that are normed.
struct NormExpected {
  std::vector<double> y, dx, weight_gradient, bias_gradient;

  template <class T>
  NormExpected(const NormArrays<T>& a, const GuardedArray<T>& normed, bool has_branch)
      : y(normed.size()), dx(normed.size()), weight_gradient(a.features), bias_gradient(a.features) {
    const auto x = in_double(normed), dy = in_double(a.dy), w = in_double(a.weight), b = in_double(a.bias);
    const auto n = static_cast<size_t>(a.features);
    for (size_t row = 0; row < static_cast<size_t>(a.rows); ++row) {
      const size_t begin = row * n;
      double mean = 0.0, variance = 0.0, gradient = 0.0, product = 0.0;
      for (size_t i = 0; i < n; ++i)
        mean += x[begin + i] / static_cast<double>(n);
      for (size_t i = 0; i < n; ++i)
        variance += (x[begin + i] - mean) * (x[begin + i] - mean) / static_cast<double>(n);
      const double rstd = 1.0 / std::sqrt(variance + 1e-6);
      const auto normalized = [&](size_t i) { return (x[begin + i] - mean) * rstd; };
      for (size_t i = 0; i < n; ++i) {
        y[begin + i] = normalized(i) * w[i] + b[i];
        gradient += dy[begin + i] * w[i] / static_cast<double>(n);
        product += dy[begin + i] * w[i] * normalized(i) / static_cast<double>(n);
        weight_gradient[i] += dy[begin + i] * normalized(i);
        bias_gradient[i] += dy[begin + i];
      }
      for (size_t i = 0; i < n; ++i) {
        const double residual =
            has_branch ? static_cast<double>(a.residual_gradient[static_cast<int64_t>(begin + i)]) : 0.0;
        dx[begin + i] = rstd * (dy[begin + i] * w[i] - gradient - normalized(i) * product) + residual;
      }
    }
    for (size_t i = 0; i < n; ++i) {
      weight_gradient[i] += 1.0;  // that of what is there
      bias_gradient[i] += 1.0;
    }
  }
};

template <class T>
void check_norm(const Rows& shape, Branch with) {
  using F = ComputeType<T>;
  const bool has_branch = with != Branch::kNone;
  const NormArrays<T> a(shape);
  std::vector<double> sum(static_cast<size_t>(a.x.size()));
  const NormParts parts = norm_parts(a.backward(has_branch), kMultiprocessors, has_branch);
  const bool sums_dx =
      has_branch && sizeof(T) == 2 && a.features <= kMostInRegisters && a.features % 8 == 0 && shape.shift == 0;
  CHECK(parts.sums == (sums_dx ? 3 : 2));
  const GuardedArray<F> partial(parts.num_elements());
  in_all_orders(
      [&] {
        fill(a.branch, 7);
        for (int64_t i = 0; i < a.x.size(); ++i) {
          const F scale = with == Branch::kScaled ? a.scales[i / a.features / kRowsOfSample] : F(1);
          sum[static_cast<size_t>(i)] =
              static_cast<double>(a.x[i]) + static_cast<double>(scale) * static_cast<double>(a.branch[i]);
        }
        for (int64_t i = 0; i < a.features; ++i)
          a.weight_gradient[i] = a.bias_gradient[i] = a.added_bias_gradient[i] = T(1.0F);
        launch_norm(a.forward(with), nullptr);
        if (with == Branch::kPlain) return;  // backward knows no factors
        launch_norm_backward(a.backward(has_branch), parts, partial.data(), nullptr);
        launch_add_norm_parts(parts, partial.data(), a.weight_gradient.data(), a.bias_gradient.data(),
                              sums_dx ? a.added_bias_gradient.data() : nullptr, nullptr);
      },
      [&](const auto& add) {
        add(a.y);
        add(a.branch);
        add(a.mean);
        add(a.rstd);
        if (with == Branch::kPlain) return;
        add(a.dx);
        add(a.weight_gradient);
        add(a.bias_gradient);
        add(a.added_bias_gradient);
      });
  const GuardedArray<T>& normed = has_branch ? a.branch : a.x;
  if (has_branch) CHECK(relative_error(normed, sum) <= kRounding<T>);
  const NormExpected expected(a, normed, has_branch);
  CHECK(relative_error(a.y, expected.y) <= kRounding<T>);
  if (with == Branch::kPlain) return;
  CHECK(relative_error(a.dx, expected.dx) <= kRounding<T>);
  const double sums = std::max(kRounding<T>, kSumRounding<F>);
  CHECK(relative_error(a.weight_gradient, expected.weight_gradient) <= sums);
  CHECK(relative_error(a.bias_gradient, expected.bias_gradient) <= sums);
  std::vector<double> added(static_cast<size_t>(a.features), 1.0);
  for (int64_t i = 0; sums_dx && i < a.dx.size(); ++i)
    added[static_cast<size_t>(i % a.features)] += static_cast<double>(a.dx[i]);
  CHECK(relative_error(a.added_bias_gradient, added) <= sums);
}

}  // namespace

TEST_CASE("emulated: LayerNorm with and without a residual sum, forward and backward, in rows of any length") {
  for_types([](auto zero) {
    for (const Rows& shape : norm_rows()) {
      for (const auto with : {Branch::kNone, Branch::kPlain, Branch::kScaled}) {
        if (kByThreads && with != Branch::kScaled) continue;
        CAPTURE(shape.rows);
        CAPTURE(shape.features);
        CAPTURE(shape.shift);
        CAPTURE(static_cast<int>(with));
        check_norm<decltype(zero)>(shape, with);
      }
    }
  });
}

namespace {

// Phi and phi of GELU.
std::pair<double, double> normal_of(double z, GeluKind kind) {
  const double root = std::sqrt(2.0 / std::acos(-1.0));
  if (kind == GeluKind::kErf) {
    return {0.5 * std::erfc(-z * std::sqrt(0.5)), 0.5 * root * std::exp(-0.5 * z * z)};
  }
  const double tanh = std::tanh(root * (z + 0.044715 * z * z * z));
  return {0.5 + 0.5 * tanh, 0.5 * root * (1.0 + 3.0 * 0.044715 * z * z) * (1.0 - tanh * tanh)};
}

template <class T>
void check_gelu(GeluKind kind) {
  using F = ComputeType<T>;
  const double sum_bound = kSumRounding<F>;
  const std::vector<Rows> shapes =
      kByThreads ? std::vector<Rows>{{37, 23, 0}, {70, 64, 0}}
                 : std::vector<Rows>{{1, 1, 0}, {37, 23, 0}, {5, 256, 0}, {394, 72, 0}, {1000, 8, 0}, {64, 40, 1}};
  for (const auto& [rows, columns, shift] : shapes) {
    CAPTURE(rows);
    CAPTURE(columns);
    const int64_t count = rows * columns;
    const GuardedArray<T> z(count, shift), y(count, shift), dy(count, shift), dz(count, shift), dz_alone(count, shift);
    fill(z, 1, 2.0);
    fill(dy, 2);
    const int64_t parts = num_column_sum_parts(rows, columns, sizeof(T), kMultiprocessors);
    const GuardedArray<F> partial(parts * columns), partial_of_columns(parts * columns);
    const GuardedArray<T> gradient(columns);
    in_all_orders(
        [&] {
          launch_gelu(z.data(), y.data(), count, kind, nullptr);
          launch_gelu_backward(dy.data(), z.data(), dz.data(), partial.data(), rows, columns, parts, kind, nullptr);
          launch_gelu_backward(dy.data(), z.data(), dz_alone.data(), static_cast<F*>(nullptr), rows, columns, parts,
                               kind, nullptr);
          launch_column_sums(dz.data(), partial_of_columns.data(), rows, columns, parts, nullptr);
          std::fill(gradient.begin(), gradient.end(), T(1.0F));
          launch_add_parts(partial.data(), gradient.data(), columns, parts, nullptr);
        },
        [&](const auto& add) {
          add(y);
          add(dz);
          add(partial);
          add(gradient);
        });
    std::vector<double> of_y, of_dz, sums(static_cast<size_t>(columns), 1.0);
    for (int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<double>(z[i]);
      const auto [normal, density] = normal_of(value, kind);
      of_y.push_back(value * normal);
      of_dz.push_back(static_cast<double>(dy[i]) * (normal + value * density));
      sums[static_cast<size_t>(i % columns)] += static_cast<double>(dz[i]);  // of what was stored
    }
    CHECK(relative_error(y, of_y) <= kRounding<T>);
    CHECK(relative_error(dz, of_dz) <= kRounding<T>);
    CHECK(in_double(dz_alone) == in_double(dz));
    CHECK(in_double(partial_of_columns) == in_double(partial));
    CHECK(relative_error(gradient, sums) <= std::max(kRounding<T>, sum_bound));
  }
}

}  // namespace

TEST_CASE("emulated: GELU with erf and with tanh, its backward, and sums of columns in parts") {
  for_types([](auto zero) {
    check_gelu<decltype(zero)>(GeluKind::kErf);
    check_gelu<decltype(zero)>(GeluKind::kTanh);
  });
}

TEST_CASE("emulated: the gradients of q, k and v are joined, by vectors and one by one") {
  for_types([](auto zero) {
    using T = decltype(zero);
    for (const auto& [rows, columns, shift] : {Rows{1, 8, 0}, Rows{37, 96, 0}, Rows{5, 33, 0}, Rows{19, 64, 1},
                                               Rows{kManyRows, 8, 0}, Rows{kManyRows, 3, 0}}) {
      if (kByThreads && rows == kManyRows) continue;
      CAPTURE(rows);
      CAPTURE(columns);
      const GuardedArray<T> dq(rows * columns), dk(rows * columns), dv(rows * columns, shift), dqkv(3 * rows * columns);
      fill(dq, 1);
      fill(dk, 2);
      fill(dv, 3);
      in_all_orders(
          [&] {
            launch_qkv_gradient(QkvGradientPass<T>{dq.data(), dk.data(), dv.data(), dqkv.data(), rows, columns},
                                nullptr);
          },
          [&](const auto& add) { add(dqkv); });
      std::vector<double> expected;
      for (int64_t row = 0; row < rows; ++row) {
        for (const auto* third : {&dq, &dk, &dv}) {
          for (int64_t i = 0; i < columns; ++i)
            expected.push_back(static_cast<double>((*third)[row * columns + i]));
        }
      }
      CHECK(in_double(dqkv) == expected);
    }
  });
}

TEST_CASE("emulated: residual sums of samples, also of more than a grid has along y") {
  for_types([](auto zero) {
    using T = decltype(zero);
    std::vector<Rows> shapes = {{3, 1, 0}, {3, 24, 0}, {2, 2500, 0}, {3, 37, 1}, {kManySamples, 8, 0}};
    if (kByThreads) shapes.pop_back();
    for (const auto& [samples, elements, shift] : shapes) {
      CAPTURE(samples);
      CAPTURE(elements);
      const int64_t count = samples * elements;
      const GuardedArray<T> a(count, shift), b(count, shift), sum(count, shift), scaled(count, shift),
          in_place(count, shift);
      const GuardedArray<ComputeType<T>> scales(samples);
      fill(a, 1);
      fill(b, 2);
      fill(scales, 3);
      in_all_orders(
          [&] {
            launch_scaled_sum(ScaledSum<T>{a.data(), b.data(), scales.data(), sum.data(), elements}, samples, nullptr);
            launch_scaled_sum(ScaledSum<T>{a.data(), nullptr, scales.data(), scaled.data(), elements}, samples,
                              nullptr);
            fill(in_place, 4);  // without stochastic depth, over one of the summands
            launch_scaled_sum(ScaledSum<T>{b.data(), in_place.data(), nullptr, in_place.data(), elements}, samples,
                              nullptr);
          },
          [&](const auto& add) {
            add(sum);
            add(scaled);
            add(in_place);
          });
      const GuardedArray<T> summand(count);
      fill(summand, 4);
      std::vector<double> of_sum, of_scaled, of_plain;
      for (int64_t i = 0; i < count; ++i) {
        const auto scale = static_cast<double>(scales[i / elements]);
        of_sum.push_back(static_cast<double>(a[i]) + scale * static_cast<double>(b[i]));
        of_scaled.push_back(scale * static_cast<double>(a[i]));
        of_plain.push_back(static_cast<double>(b[i]) + static_cast<double>(summand[i]));
      }
      CHECK(relative_error(sum, of_sum) <= kRounding<T>);
      CHECK(relative_error(scaled, of_scaled) <= kRounding<T>);
      CHECK(relative_error(in_place, of_plain) <= kRounding<T>);
    }
  });
}

TEST_CASE("emulated: a sum of more samples than a GPU's grid has along y, with its real bound") {
  if (kByThreads) return;
  constexpr int64_t kSamples = 70000;
  const GuardedArray<float> x(kSamples), scales(kSamples), sum(kSamples);
  fill(x, 1);
  fill(scales, 2);
  const RealGrids real;
  launch_scaled_sum(ScaledSum<float>{x.data(), x.data(), scales.data(), sum.data(), 1}, kSamples, nullptr);
  std::vector<double> expected;
  for (int64_t i = 0; i < kSamples; ++i)
    expected.push_back(static_cast<double>(x[i]) * (1.0 + static_cast<double>(scales[i])));
  CHECK(relative_error(sum, expected) <= kRounding<float>);
}

TEST_CASE("emulated: dropout, drop path and attention masks keep what their draws keep") {
  const DrawStream stream{{0x1234U, 0x5678U}, 0x60000000U};
  SampleNumbers samples{};
  samples.count = 3;
  samples.numbers[0] = 5;
  samples.numbers[1] = int64_t{1} << 40;
  samples.numbers[2] = 6;
  const auto sample_of = [&](int64_t row) { return static_cast<uint64_t>(samples.numbers[row]); };
  for_types([&](auto zero) {
    using T = decltype(zero);
    using F = ComputeType<T>;
    for (const auto& [features, first, of, shift] :
         {std::tuple(16U, 8, 32, 0), std::tuple(16U, 8, 32, 1), std::tuple(16U, 2, 32, 0), std::tuple(5U, 4, 11, 3)}) {
      CAPTURE(features);
      CAPTURE(first);
      CAPTURE(shift);
      const uint32_t tokens = kByThreads ? 9 : 130;
      const int64_t elements = int64_t{tokens} * features;
      const GuardedArray<T> x(samples.count * elements, shift), y(samples.count * elements, shift);
      fill(x, 1);
      const DropoutPass<T> pass{x.data(), y.data(), tokens, features, first, of, F(1.5), stream};
      in_all_orders([&] { launch_dropout(pass, samples, nullptr); }, [&](const auto& add) { add(y); });
      std::vector<double> expected;
      for (int64_t i = 0; i < x.size(); ++i) {
        const auto draw = pass.draw_of(static_cast<uint32_t>(i % elements));
        const bool kept = stream.bits(draw, sample_of(i / elements)) >= stream.threshold;
        expected.push_back(static_cast<double>(static_cast<T>(static_cast<F>(x[i]) * (kept ? F(1.5) : F(0)))));
      }
      CHECK(in_double(y) == expected);
    }
  });
  const auto check_path_scales = [&](auto zero) {
    using F = decltype(zero);
    const GuardedArray<F> scales(samples.count, 1);
    launch_path_scales(stream, samples, 1.0 / 0.9, scales.data(), nullptr);
    for (int64_t i = 0; i < samples.count; ++i)
      CHECK(scales[i] == (stream.bits(sample_of(i), 0) >= stream.threshold ? static_cast<F>(1.0 / 0.9) : F(0)));
  };
  check_path_scales(float());
  check_path_scales(double());
  for (const auto& [keys, shift] : {std::pair(1, 0), std::pair(33, 0), std::pair(33, 1), std::pair(130, 3)}) {
    CAPTURE(keys);
    const int64_t heads = 2, queries = 5;
    const GuardedArray<uint8_t> keep(samples.count * heads * queries * keys, shift);
    const AttentionMask mask{stream, 3, heads, 197, 7, queries, 2, keys, keep.data()};
    in_all_orders([&] { launch_attention_mask(mask, samples, nullptr); }, [&](const auto& add) { add(keep); });
    bool is_right = true;
    for (int64_t i = 0; i < keep.size(); ++i) {
      const int64_t row = i / keys;  // (sample, head, query)
      const uint64_t draw = mask.first_draw(row % (heads * queries)) + static_cast<uint64_t>(i % keys);
      const uint8_t kept = stream.bits(draw, sample_of(row / (heads * queries))) >= stream.threshold ? 1 : 0;
      is_right = is_right && keep[i] == kept;
    }
    CHECK(is_right);
  }
}

TEST_CASE("emulated: errors of fields in patches, and their gradients, also of more samples than a grid has along y") {
  struct Field {
    int64_t samples;
    uint32_t height, width, patch_height, patch_width, channels;
    int64_t shift;
  };
  std::vector<Field> fields = {{2, 8, 12, 4, 4, 2, 0},
                               {3, 9, 6, 3, 3, 5, 0},
                               {2, 8, 8, 4, 4, 3, 1},
                               {2, 7, 11, 4, 3, 2, 0},
                               {2, 9, 7, 2, 4, 8, 1}};
  if (!kByThreads)
    fields.insert(fields.end(),
                  {{1, 64, 128, 8, 8, 20, 0}, {1, 61, 128, 7, 9, 20, 0}, {kManySamples, 1, 1, 1, 1, 8, 0}});
  for_types([&](auto zero) {
    using T = decltype(zero);
    using F = ComputeType<T>;
    for (const Field& f : fields) {
      CAPTURE(f.samples);
      CAPTURE(f.patch_height);
      const int64_t rows = (f.height + f.patch_height - 1) / f.patch_height;
      const int64_t columns = (f.width + f.patch_width - 1) / f.patch_width;
      const int64_t plane = int64_t{f.height} * f.width, in_patch = int64_t{f.patch_height} * f.patch_width;
      const int64_t elements = rows * columns * in_patch * f.channels, of_field = plane * f.channels;
      const GuardedArray<T> prediction(f.samples * elements, f.shift), gradient(f.samples * elements, f.shift);
      const GuardedArray<F> truth(f.samples * of_field);
      const GuardedArray<double> factors(f.samples), workspace(2 * kFieldParts * f.samples), sums(2 * f.samples);
      const GuardedArray<double> row_weights(f.height), channel_weights(f.channels);
      fill(prediction, 1);
      fill(truth, 2);
      fill(factors, 3);
      fill(row_weights, 4);
      fill(channel_weights, 5);
      FieldArrays<T> arrays{
          prediction.data(),
          truth.data(),
          gradient.data(),
          factors.data(),
          elements,
          {static_cast<uint32_t>(columns), f.patch_height, f.patch_width, f.channels, f.height, f.width, plane}};
      for (const auto power : {ErrorPower::kSquare, ErrorPower::kAbsolute}) {
        const bool is_square = power == ErrorPower::kSquare;
        for (const int weighing : {0, 1, 2, 3}) {
          if (plane > 1000 && (weighing == 1 || weighing == 2)) continue;  // large fields: none and both
          CAPTURE(weighing);
          CAPTURE(is_square);
          arrays.power = power;
          arrays.row_weights = (weighing & 1) != 0 ? row_weights.data() : nullptr;
          arrays.channel_weights = (weighing & 2) != 0 ? channel_weights.data() : nullptr;
          in_all_orders(
              [&] {
                launch_field_sums(arrays, f.samples, workspace.data(), sums.data(), nullptr);
                launch_field_gradient(arrays, f.samples, nullptr);
              },
              [&](const auto& add) {
                add(sums);
                add(gradient);
              });
          std::vector<double> expected(static_cast<size_t>(2 * f.samples)), of_gradient;
          for (int64_t i = 0; i < prediction.size(); ++i) {
            const int64_t sample = i / elements, at = i % elements, pixel = at / f.channels, patch = pixel / in_patch;
            const int64_t row = patch / columns * f.patch_height + pixel % in_patch / f.patch_width;
            const int64_t column = patch % columns * f.patch_width + pixel % f.patch_width;
            const bool is_inside = row < f.height && column < f.width;
            const auto target =
                is_inside
                    ? static_cast<double>(truth[sample * of_field + at % f.channels * plane + row * f.width + column])
                    : 0.0;
            const double error = is_inside ? static_cast<double>(prediction[i]) - target : 0.0;
            const double weight = !is_inside ? 0.0
                                             : ((weighing & 1) != 0 ? row_weights[row] : 1.0) *
                                                   ((weighing & 2) != 0 ? channel_weights[at % f.channels] : 1.0);
            const double sign = static_cast<double>(error > 0.0) - static_cast<double>(error < 0.0);
            expected[static_cast<size_t>(sample)] += weight * (is_square ? error * error : std::abs(error));
            expected[static_cast<size_t>(f.samples + sample)] +=
                weight * (is_square ? target * target : std::abs(target));
            of_gradient.push_back(weight * (is_square ? error : sign) * factors[sample]);
          }
          CHECK(relative_error(sums, expected) <= 1e-6);  // differences are rounded to the computing type
          CHECK(relative_error(gradient, of_gradient) <= kRounding<T>);
        }
      }
    }
  });
}
