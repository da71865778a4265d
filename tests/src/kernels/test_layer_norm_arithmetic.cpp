// LayerNorm's device code run on the host by real threads, which wait for each other as a warp's do: against LibTorch
// in double.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/zeros.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <doctest/doctest.h>

#include <array>
#include <barrier>
#include <thread>
#include <vector>

#include "src/kernels/layer_norm_arithmetic.h"
#include "tests/support/compare.h"
#include "tests/support/kernel_arrays.h"

using namespace vit_hybrid;
using namespace vit_hybrid::kernels;
using namespace vit_hybrid::testing;

namespace {

constexpr int kRowThreads = 8;

// Threads of the host in the place of a warp's; sums are made by thread 0, in their order.
class TestThreads {
 public:
  struct Shared {
    std::barrier<> barrier{kRowThreads};
    std::array<double, kRowThreads> values{};
  };
  TestThreads(Shared& shared, int rank) : shared_(shared), rank_(rank) {}
  int rank() const { return rank_; }
  int size() const { return kRowThreads; }
  template <class F>
  F sum(F value) const {
    shared_.values[static_cast<size_t>(rank_)] = static_cast<double>(value);
    shared_.barrier.arrive_and_wait();
    F total = 0;
    for (const double part : shared_.values) {
      total += static_cast<F>(part);
    }
    shared_.barrier.arrive_and_wait();
    return total;
  }
  template <class Vector>
  void forget(Vector& /*vector*/) const {}

 private:
  Shared& shared_;
  int rank_;
};

template <class Work>
void for_threads(const Work& work) {
  TestThreads::Shared shared;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRowThreads; ++rank) {
    threads.emplace_back([&, rank] { work(TestThreads(shared, rank)); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

template <class T, int kWidth = kVectorWidth<T>>
void check_norm(int64_t rows, int64_t features, bool in_registers, double bound) {
  CAPTURE(features);
  CAPTURE(in_registers);
  using F = ComputeType<T>;
  constexpr int kVectors = 3;
  const at::Tensor x = normals({rows, features}, 1, kType<T>).add(3.0), branch = normals({rows, features}, 2, kType<T>);
  const at::Tensor weight = normals({features}, 3, kType<T>), bias = normals({features}, 4, kType<T>);
  const at::Tensor scales = normals({rows / 2}, 5, kType<F>);
  const at::Tensor sum = branch.clone(), y = unwritten(x, kType<T>);
  const at::Tensor mean = unwritten(x.select(1, 0), kType<F>), rstd = mean.clone();
  const NormForward<T> forward{x.const_data_ptr<T>(),
                               sum.data_ptr<T>(),
                               scales.const_data_ptr<F>(),
                               weight.const_data_ptr<T>(),
                               bias.const_data_ptr<T>(),
                               y.data_ptr<T>(),
                               mean.data_ptr<F>(),
                               rstd.data_ptr<F>(),
                               rows,
                               2,
                               features,
                               F(1e-5)};
  const at::Tensor dy = normals({rows, features}, 6, kType<T>), residual = normals({rows, features}, 7, kType<T>);
  const at::Tensor dx = unwritten(x, kType<T>), sums = at::zeros({2, features}, kType<F>);
  const NormBackward<T> backward{dy.const_data_ptr<T>(),
                                 sum.const_data_ptr<T>(),
                                 mean.const_data_ptr<F>(),
                                 rstd.const_data_ptr<F>(),
                                 weight.const_data_ptr<T>(),
                                 residual.const_data_ptr<T>(),
                                 dx.data_ptr<T>(),
                                 rows,
                                 features};
  for_threads([&](const TestThreads& threads) {
    NormSums<F, kWidth * kVectors> own;
    own.clear();
    for (int64_t row = 0; row < rows; ++row) {
      F* const of_weight = sums.data_ptr<F>();
      if (in_registers) {
        norm_short_row<kWidth, kVectors>(forward, row, threads);
        static_cast<void>(threads.sum(F(0)));  // thread 0 has written the statistics
        norm_gradient_short_row<kWidth, kVectors>(backward, row, threads, own);
      } else {
        norm_long_row<1>(forward, row, threads);
        static_cast<void>(threads.sum(F(0)));
        norm_gradient_long_row<1>(backward, row, threads, of_weight, of_weight + features);
      }
    }
    for (int i = 0; in_registers && i < kWidth * kVectors; ++i) {
      const int64_t column = column_of<kWidth>(i / kWidth, threads) + i % kWidth;
      if (column < features) {
        sums.data_ptr<F>()[column] += own.weight[i];
        sums.data_ptr<F>()[features + column] += own.bias[i];
      }
    }
  });
  const auto wide = [](const at::Tensor& tensor) { return tensor.to(at::kDouble); };
  const at::Tensor scale = wide(scales).repeat_interleave(2).unsqueeze(1);
  CHECK(testing::relative_error(sum, wide(x) + scale * wide(branch)) <= bound);
  const auto [y64, mean64, rstd64] = at::native_layer_norm(wide(sum), {features}, wide(weight), wide(bias), 1e-5);
  CHECK(testing::relative_error(y, y64) <= bound);
  CHECK(testing::relative_error(mean, mean64.view(-1)) <= bound);
  CHECK(testing::relative_error(rstd, rstd64.view(-1)) <= bound);
  const auto [dx64, dweight64, dbias64] = at::native_layer_norm_backward(
      wide(dy), wide(sum), {features}, mean64, rstd64, wide(weight), wide(bias), {true, true, true});
  CHECK(testing::relative_error(dx, dx64 + wide(residual)) <= bound);
  CHECK(testing::relative_error(sums[0], dweight64) <= (bound > 1e-4 ? 1e-4 : bound));  // fp32 whatever T is
  CHECK(testing::relative_error(sums[1], dbias64) <= (bound > 1e-4 ? 1e-5 : bound));
}

}  // namespace

TEST_CASE("device norm: the threads of a row add, norm, and make the gradients of the layer in double") {
  const auto check = [](auto zero, double bound) {
    using T = decltype(zero);
    for (const int64_t vectors : {1, kRowThreads + 3, 3 * kRowThreads}) {
      check_norm<T>(6, vectors * kVectorWidth<T>, true, bound);
      check_norm<T>(6, vectors * kVectorWidth<T> + 1, false, bound);
    }
    check_norm<T, 1>(6, 2 * kRowThreads + 3, true, bound);
  };
  check(float(), 4e-6);
  check(double(), 1e-13);
  check(c10::BFloat16(), 6e-3);
  check(c10::Half(), 8e-4);
}
