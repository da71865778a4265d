// The threads that copy the gradients of q, k and v into that of qkv, run on the host one after the other.
#include <ATen/ops/cat.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <doctest/doctest.h>

#include "src/kernels/attention/device_attention_cuda.h"
#include "tests/support/kernel_arrays.h"

using namespace vit_hybrid;
using namespace vit_hybrid::kernels;
using namespace vit_hybrid::testing;

namespace {

template <int kWidth, class T>
void check_threads(int64_t rows, int64_t columns) {
  CAPTURE(rows);
  CAPTURE(columns);
  constexpr int kRows = 3;
  constexpr int64_t kRowsAtOnce = 2;
  const at::Tensor dq = normals({rows, columns}, 1, kType<T>), dk = normals({rows, columns}, 2, kType<T>),
                   dv = normals({rows, columns}, 3, kType<T>), expected = at::cat({dq, dk, dv}, 1);
  const at::Tensor dqkv = unwritten(expected, kType<T>);
  const QkvGradientPass<T> pass{
      dq.const_data_ptr<T>(), dk.const_data_ptr<T>(), dv.const_data_ptr<T>(), dqkv.data_ptr<T>(), rows, columns};
  for (int64_t block = 0; block < rows; block += kRows * kRowsAtOnce) {
    for (int64_t row = block; row < block + kRowsAtOnce; ++row) {
      for (int64_t column = 0; column < 3 * columns; column += kWidth) {
        qkv_gradient_share<kWidth, kRows>(pass, column, row, kRowsAtOnce);
      }
    }
  }
  CHECK(dqkv.equal(expected));
}

template <class T>
void check_type() {
  for (const int64_t rows : {1, 6, 17}) {
    check_threads<kVectorWidth<T>, T>(rows, 5 * kVectorWidth<T>);
    check_threads<1, T>(rows, 7);
  }
}

}  // namespace

TEST_CASE("qkv gradient: each element of the three gradients comes to its place, by vectors and one by one") {
  check_type<float>();
  check_type<double>();
  check_type<c10::BFloat16>();
  check_type<c10::Half>();
}
