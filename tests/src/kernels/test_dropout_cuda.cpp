// What the threads of the model's element-wise device kernels do, run on the host for every thread of a grid: against
// LibTorch in double.
#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <tuple>
#include <vector>

#include "src/kernels/dropout.h"
#include "src/kernels/dropout_cuda.h"
#include "src/kernels/field_error_cuda.h"
#include "src/kernels/patch_grid.h"
#include "tests/support/compare.h"
#include "tests/support/kernel_arrays.h"

using namespace vit_hybrid;
using namespace vit_hybrid::kernels;
using namespace vit_hybrid::testing;

namespace {

// Calls `work(share)` for each thread of a grid.
template <class Work>
void for_grid(const VectorSplit& split, const Work& work) {
  constexpr int kThreads = 4, kPerThread = 2;
  for (int64_t block = 0; block < num_blocks_for(split.num_items(), kThreads * kPerThread); ++block) {
    for (int thread = 0; thread < kThreads; ++thread) {
      work(ThreadShare::of(block, thread, kThreads, kPerThread));
    }
  }
}

// Calls `check(T())` for each type, with the largest error of a value that is rounded once.
template <class Check>
void for_types(const Check& check) {
  check(float(), 4e-6);
  check(double(), 1e-13);
  check(c10::BFloat16(), 6e-3);
  check(c10::Half(), 8e-4);
}

}  // namespace

TEST_CASE("device rows: residual sums and scaled samples") {
  for_types([](auto zero, double bound) {
    using T = decltype(zero);
    using F = ComputeType<T>;
    for (const int64_t elements : {1, 24, 37}) {
      const at::Tensor a = normals({3, elements}, 1, kType<T>), b = normals({3, elements}, 2, kType<T>);
      const at::Tensor scales = normals({3}, 3, kType<F>);
      scales.data_ptr<F>()[1] = F(0);
      const at::Tensor sum = unwritten(a, kType<T>), scaled = unwritten(a, kType<T>);
      for (int64_t sample = 0; sample < 3; ++sample) {
        const ScaledSum<T> add{a.const_data_ptr<T>(), b.const_data_ptr<T>(), scales.const_data_ptr<F>(),
                               sum.data_ptr<T>(), elements};
        const ScaledSum<T> scale{a.const_data_ptr<T>(), nullptr, scales.const_data_ptr<F>(), scaled.data_ptr<T>(),
                                 elements};
        for_grid(scaled_sum_split(add), [&](const ThreadShare& share) {
          scaled_sum_share(add, sample, scaled_sum_split(add), share);
          scaled_sum_share(scale, sample, scaled_sum_split(scale), share);
        });
      }
      const at::Tensor factors = scales.to(at::kDouble).unsqueeze(1);
      CHECK(testing::relative_error(sum, a.to(at::kDouble) + factors * b.to(at::kDouble)) <= bound);
      CHECK(testing::relative_error(scaled, factors * a.to(at::kDouble)) <= bound);
    }
  });
}

TEST_CASE("device rows: dropout keeps what the host's draws keep, at any place of the features") {
  for_types([](auto zero, double bound) {
    using T = decltype(zero);
    const RandomStream stream(3, Purpose::kDropout, 5, 6);
    const uint32_t threshold = drop_threshold(0.3);
    for (const auto& [features, first, of] : {std::tuple(16, 8, 32), std::tuple(16, 2, 32), std::tuple(5, 4, 11)}) {
      CAPTURE(first);
      const at::Tensor x = normals({2, 3, features}, 1, kType<T>), y = unwritten(x, kType<T>);
      at::Tensor expected = x.to(at::kDouble);
      for (int64_t row = 0; row < 2; ++row) {
        const uint64_t sample = 40 + static_cast<uint64_t>(row);
        const DropoutPass<T> pass{
            x.const_data_ptr<T>(),     y.data_ptr<T>(),          3, static_cast<uint32_t>(features), first, of,
            ComputeType<T>(1.0 / 0.7), {stream.key(), threshold}};
        CHECK((dropout_split(pass).vectors > 0) == (first % 4 == 0 && features % 4 == 0));
        for_grid(dropout_split(pass),
                 [&](const ThreadShare& share) { dropout_share(pass, row, sample, dropout_split(pass), share); });
        for (int64_t i = 0; i < 3 * features; ++i) {
          const auto draw = static_cast<uint64_t>(i / features * of + first + i % features);
          expected.data_ptr<double>()[row * 3 * features + i] *= stream.bits(draw, sample) >= threshold ? 1 / 0.7 : 0.0;
        }
      }
      CHECK(testing::relative_error(y, expected) <= bound);
    }
  });
}

TEST_CASE("device rows: attention masks are those of AttentionDropout, row by row") {
  SampleContext context;
  context.seed = 5;
  context.samples = {7, 1234567};
  context.mode = Mode::kTraining;
  const DropKey key{0.4, 2, DropSite::kAttention};
  for (const int64_t tokens : {4, 7, 10}) {
    const AttentionDropout dropout(key, context, 3, tokens);
    const RandomStream stream = key.stream(Purpose::kAttentionDropout, context);
    std::vector<uint8_t> keep(static_cast<size_t>(2 * 2 * 3 * (tokens - 1)), 9), row(static_cast<size_t>(tokens - 1));
    const AttentionMask mask{{stream.key(), drop_threshold(0.4)}, 3, 2, tokens, 1, 3, 1, tokens - 1, keep.data()};
    for (int64_t i = 0; i < 12; ++i) {
      const uint64_t first = mask.first_draw(i % 6);
      uint8_t* const own = keep.data() + i * (tokens - 1);
      for (int64_t block = 0; block < num_blocks_of(first, mask.keys); ++block) {
        keep_block(mask.stream, static_cast<uint64_t>(context.samples[static_cast<size_t>(i / 6)]), first, mask.keys,
                   block, own);
      }
      dropout.fill_row(i / 6, i % 6 / 3, 1 + i % 3, {1, tokens}, row.data());
      CHECK(std::vector<uint8_t>(own, own + tokens - 1) == row);
    }
  }
}

TEST_CASE("device rows: field errors and their gradients find each value of the field in its patch") {
  for_types([](auto zero, double bound) {
    using T = decltype(zero);
    using F = ComputeType<T>;
    for (const PatchGrid& grid : {PatchGrid{4, 6, 2, 2, 3}, PatchGrid{12, 8, 4, 4, 8}, PatchGrid{3, 6, 3, 3, 1},
                                  PatchGrid{5, 7, 2, 3, 3}, PatchGrid{7, 9, 4, 3, 8}}) {
      const at::Tensor patches = normals({2, grid.num_patches(), grid.num_features()}, 1, kType<T>);
      const at::Tensor fields = normals({2, grid.channels, grid.height, grid.width}, 2, kType<F>);
      const at::Tensor gradient = unwritten(patches, kType<T>), factors = normals({2}, 3, at::kDouble);
      const auto unsign = [](int64_t value) { return static_cast<uint32_t>(value); };
      const FieldArrays<T> arrays{
          patches.const_data_ptr<T>(),
          fields.const_data_ptr<F>(),
          gradient.data_ptr<T>(),
          factors.const_data_ptr<double>(),
          grid.num_patches() * grid.num_features(),
          {unsign(grid.columns()), unsign(grid.patch_height), unsign(grid.patch_width), unsign(grid.channels),
           unsign(grid.height), unsign(grid.width), grid.height * grid.width}};
      const at::Tensor squares = at::zeros({2, 2}, at::kDouble);
      for (int64_t sample = 0; sample < 2; ++sample) {
        for_grid(field_split(arrays), [&](const ThreadShare& share) {
          const FieldSums part = field_sums_share(arrays, sample, field_split(arrays), share);
          squares.data_ptr<double>()[sample] += part.error;
          squares.data_ptr<double>()[2 + sample] += part.truth;
          field_gradient_share(arrays, sample, field_split(arrays), share);
        });
      }
      const int64_t rows = grid.rows(), columns = grid.columns();
      const auto in_patches = [&](const at::Tensor& x) {
        return at::constant_pad_nd(
                   x, {0, columns * grid.patch_width - grid.width, 0, rows * grid.patch_height - grid.height})
            .view({2, grid.channels, rows, grid.patch_height, columns, grid.patch_width})
            .permute({0, 2, 4, 3, 5, 1})
            .reshape(patches.sizes());
      };
      const at::Tensor truth = in_patches(fields.to(at::kDouble)), is_inside = in_patches(at::ones_like(fields));
      const at::Tensor difference = (patches.to(at::kDouble) - truth) * is_inside;
      CHECK(testing::relative_error(squares[0], difference.square().sum({1, 2})) <= 1e-6);
      CHECK(testing::relative_error(squares[1], truth.square().sum({1, 2})) <= 1e-12);
      CHECK(testing::relative_error(gradient, difference * factors.view({2, 1, 1})) <= bound);
    }
  });
}
