// GELU of tensors, forward and backward: on the host in rows that stay in the first-level cache between reading and
// writing.
#include "src/kernels/gelu.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>

#include "src/kernels/gelu_rows.h"
#include "src/kernels/gemm/epilogue.h"

namespace vit_hybrid::kernels {

namespace {

constexpr int64_t kElementsPerTask = 32768;

template <class T>
void gelu_on_host(const at::Tensor& z, GeluKind kind, const at::Tensor& y) {
  at::parallel_for(0, z.numel(), kElementsPerTask, [&](int64_t begin, int64_t end) {
    gelu_row(z.const_data_ptr<T>() + begin, y.mutable_data_ptr<T>() + begin, end - begin, kind);
  });
}

template <class T>
void backward_on_host(const at::Tensor& dy, const at::Tensor& z, GeluKind kind, const at::Tensor& dz,
                      const ColumnSums& sums) {
  using Sum = at::opmath_type<T>;
  const int64_t columns = z.size(1);
  at::parallel_for(0, sums.num_blocks(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const Range rows = sums.block(block);
      const int64_t first = rows.begin * columns;
      gelu_backward_rows(dy.const_data_ptr<T>() + first, z.const_data_ptr<T>() + first,
                         dz.mutable_data_ptr<T>() + first, rows.size(), sums.sums<Sum>(block), columns, kind);
    }
  });
}

}  // namespace

at::Tensor gelu(const at::Tensor& z, GeluKind kind) {
  if (!z.is_cpu()) {
    return device_gelu(z, kind);
  }
  const at::Tensor in = z.contiguous();
  at::Tensor y = at::empty_like(in);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, z.scalar_type(), "gelu",
                                  [&] { gelu_on_host<scalar_t>(in, kind, y); });
  return y;
}

at::Tensor gelu_backward(const at::Tensor& dy, const at::Tensor& z, GeluKind kind, const at::Tensor& bias_gradient) {
  if (!dy.is_cpu()) {
    return device_gelu_backward(dy, z, kind, bias_gradient);
  }
  at::Tensor dz = at::empty_like(dy);
  const ColumnSums sums(dy.size(0), dy.size(1), at::toOpMathType(dy.scalar_type()));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dy.scalar_type(), "gelu_backward",
                                  [&] { backward_on_host<scalar_t>(dy, z, kind, dz, sums); });
  if (bias_gradient.defined()) {
    sums.add_to(bias_gradient);
  }
  return dz;
}

}  // namespace vit_hybrid::kernels
