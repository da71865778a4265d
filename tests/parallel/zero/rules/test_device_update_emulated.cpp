// The kernels of Adam's step, sums of squares and the step's decision on the host, in grid and block form, against
// plain loops in double.
#include "parallel/zero/rules/device_update_cuda.h"
#include "tests/support/emulator/kernel_test.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using namespace vit_hybrid::zero;

namespace {

OptimizerOptions adam_options(OptimizerKind kind) {
  OptimizerOptions options;
  options.kind = kind;
  options.eps = 1e-3;
  return options;
}

template <class Master, class Gradient, class Parameter>
void check_adam(OptimizerKind kind, int64_t count) {
  constexpr bool kOwnMaster = !std::is_same_v<Master, Parameter>;
  // Two segments, of which the second lies elsewhere in the flat buffers and decays.
  const int64_t second = count / 8 * 4, shift = 16;
  const std::vector<Segment> segments = {{0, 0, 0.0}, {second, shift, 0.1}};
  const GuardedArray<Master> master(count), exp_avg(count), exp_avg_sq(count);
  const GuardedArray<Gradient> gradients(count + shift);
  const GuardedArray<Parameter> parameters(count + shift);
  fill(gradients, 1);
  const OptimizerOptions options = adam_options(kind);
  StepScalars step;
  step.lr = step.step_size = 0.25;
  step.root_scale = 1.5;
  step.gradient_scale = 0.5;
  const auto flat = [&](int64_t i) { return i < second ? i : i + shift; };
  std::vector<double> weights, averages, squares;
  in_all_orders(
      [&] {
        fill(master, 2);
        fill(parameters, 3);
        fill(exp_avg, 4);
        fill(exp_avg_sq, 5);
        weights.clear();
        averages.clear();
        squares.clear();
        for (int64_t i = 0; i < count; ++i) {
          exp_avg_sq[i] = std::fabs(exp_avg_sq[i]);
          const double weight = kOwnMaster ? static_cast<double>(master[i]) : static_cast<double>(parameters[flat(i)]);
          const double decay = i < second ? 0.0 : 0.1;
          const bool decoupled = kind == OptimizerKind::kAdamW;
          const double gradient = static_cast<double>(gradients[flat(i)]) * 0.5 + (decoupled ? 0.0 : decay * weight);
          averages.push_back(0.9 * static_cast<double>(exp_avg[i]) + 0.1 * gradient);
          squares.push_back(0.95 * static_cast<double>(exp_avg_sq[i]) + 0.05 * gradient * gradient);
          weights.push_back(weight * (decoupled ? 1.0 - 0.25 * decay : 1.0) -
                            0.25 * averages.back() / (std::sqrt(squares.back()) * 1.5 + 1e-3));
        }
        launch_adam(AdamArrays<Master, Gradient, Parameter>{kOwnMaster ? master.data() : nullptr, exp_avg.data(),
                                                            exp_avg_sq.data(), gradients.data(), parameters.data()},
                    count, adam_constants<Master>(options), &step, SegmentTable{segments.data(), 2}, nullptr);
      },
      [&](const auto& add) {
        add(master);
        add(exp_avg);
        add(exp_avg_sq);
        add(parameters);
      });
  std::vector<double> updated;
  for (int64_t i = 0; i < count; ++i)
    updated.push_back(static_cast<double>(parameters[flat(i)]));
  CHECK(relative_error(exp_avg, averages) <= kRounding<Master>);
  CHECK(relative_error(exp_avg_sq, squares) <= kRounding<Master>);
  CHECK(relative_error(updated, weights) <= kRounding<Parameter>);
  if (kOwnMaster) CHECK(relative_error(master, weights) <= kRounding<Master>);
  const auto before = in_double(parameters);
  step.skip = 1.0;
  launch_adam(AdamArrays<Master, Gradient, Parameter>{kOwnMaster ? master.data() : nullptr, exp_avg.data(),
                                                      exp_avg_sq.data(), gradients.data(), parameters.data()},
              count, adam_constants<Master>(options), &step, SegmentTable{segments.data(), 2}, nullptr);
  CHECK(in_double(parameters) == before);
}

}  // namespace

TEST_CASE("emulated: Adam's and AdamW's step over two segments, in every type; a skipped one changes nothing") {
  using c10::BFloat16;
  using c10::Half;
  for (const auto kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    for (const int64_t count : {8, 20, 4096, 5000}) {
      if (kByThreads && count > 20) continue;
      CAPTURE(count);
      check_adam<double, double, double>(kind, count);
      check_adam<float, float, float>(kind, count);
      check_adam<float, float, BFloat16>(kind, count);
      check_adam<float, float, Half>(kind, count);
      check_adam<float, BFloat16, BFloat16>(kind, count);
      check_adam<float, Half, Half>(kind, count);
    }
  }
}

namespace {

// Elements [begin, end) of an array.
struct Part {
  int64_t begin, end;
};

// Of an array that ends with the last range, and in which everything outside of them is not finite.
template <class T>
void check_squares(const std::vector<Part>& ranges) {
  const int64_t size = ranges.back().end;
  CAPTURE(size);
  const GuardedArray<T> values(size), inside(size);
  const GuardedArray<double> workspace(2 * kSquareBlocks), sums(2);
  std::fill(values.begin(), values.end(), std::numeric_limits<T>::quiet_NaN());
  fill(inside, 1);
  double expected = 1.0;
  for (const auto& [begin, end] : ranges) {
    std::copy(inside.begin() + begin, inside.begin() + end, values.begin() + begin);
    for (int64_t i = begin; i < end; ++i)
      expected += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  const bool has_infinity = size > 2;
  if (has_infinity) {
    const double lost = static_cast<double>(values[size - 1]);
    expected -= lost * lost;
    values[size - 1] = std::numeric_limits<T>::infinity();
  }
  const auto table = counted_ranges(ranges, kernels::kVectorWidth<T>);
  const auto sum = [&](const Table<CountedRange>& entries) {
    sums[0] = 1.0;
    sums[1] = 2.0;
    launch_sum_of_squares(values.data(), {entries, table.back()}, workspace.data(), sums.data(), nullptr);
  };
  in_all_orders([&] { sum({table.data(), static_cast<int64_t>(table.size())}); }, [&](const auto& add) { add(sums); });
  CHECK(std::fabs(sums[0] - expected) <= 1e-12 * expected);
  CHECK(sums[1] == (has_infinity ? 3.0 : 2.0));
  if (table.size() == 1) {
    const double by_table = sums[0];
    sum({});
    CHECK(sums[0] == by_table);
  }
}

}  // namespace

TEST_CASE("emulated: sums of squares of ranges count what is finite and what is not, and the decision takes them") {
  std::vector<Part> many;  // of all lengths and begins, with gaps of all lengths
  for (int64_t i = 0, begin = 0; i < (kByThreads ? 20 : 300); ++i, begin = many.back().end + i % 5)
    many.push_back({begin, begin + i * i % 37});
  for_types([&](auto zero) {
    using T = decltype(zero);
    check_squares<T>({{0, 1}});
    check_squares<T>({{1, 3}});
    check_squares<T>(many);
    if (!kByThreads) check_squares<T>({{0, 4096}, {4096, 4096}, {5001, 9100}});
  });
  check_squares<float>({{3, 300000}});
  // More than a grid has threads with the fewest vectors.
  if (!kByThreads) check_squares<double>({{1, 1'000'000}, {1'000'004, 2'200'001}});
}

TEST_CASE("emulated: the step's decision") {
  StepScalars step;
  step.squares = 16.0;
  step.loss_scale = 2.0;
  step.max_norm = 1.0;
  launch_decide(&step, nullptr);
  CHECK(step.norm == 2.0);
  CHECK(step.gradient_scale == doctest::Approx(0.25));
  CHECK_FALSE(step.is_skipped());
  step.not_finite = 1.0;
  launch_decide(&step, nullptr);
  CHECK(step.is_skipped());
}
