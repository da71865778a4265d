// Sums of squares of tensors.
#include "parallel/zero/sum_of_squares.h"

#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::zero {

namespace {

template <class T>
double host_sum_of_squares(const at::Tensor& values) {
  const T* const data = values.const_data_ptr<T>();
  return sum_over_blocks<double>(
      values.numel(), [data](int64_t begin, int64_t count) { return block_sum_of_squares(data + begin, count); });
}

}  // namespace

double sum_of_squares(const at::Tensor& values) {
  if (!values.is_cpu()) {
    return sum_of_squares_there(values).item<double>();
  }
  if (values.scalar_type() == at::kFloat) {
    return host_sum_of_squares<float>(values);
  }
  VH_ASSERT(values.scalar_type() == at::kDouble, str("values of type ", c10::toString(values.scalar_type())));
  return host_sum_of_squares<double>(values);
}

at::Tensor sum_of_squares_there(const at::Tensor& values) {
  if (values.is_cpu()) {
    return at::full({}, sum_of_squares(values), at::kDouble);
  }
  return at::linalg_vector_norm(values, 2.0, {}, false, at::kDouble).square();
}

}  // namespace vit_hybrid::zero
