// Blocks of rows are summed by themselves, then their sums in order.
#include "src/kernels/gemm/column_sums.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "src/base/memory_tracker.h"
#include "src/kernels/gemm/device_products.h"
#include "src/kernels/gemm/linear_rows.h"

namespace vit_hybrid::kernels {

namespace {

constexpr int64_t kBlockRows = 64;

template <class T>
void add_on_host(const at::Tensor& gradient, const at::Tensor& dy) {
  using Sum = at::opmath_type<T>;
  const int64_t columns = dy.size(1);
  const ColumnSums sums(dy.size(0), columns, c10::CppTypeToScalarType<Sum>::value);
  at::parallel_for(0, sums.num_blocks(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const Range rows = sums.block(block);
      add_rows(dy.const_data_ptr<T>() + rows.begin * columns, rows.size(), sums.sums<Sum>(block), columns);
    }
  });
  sums.add_to(gradient);
}

}  // namespace

ColumnSums::ColumnSums(int64_t rows, int64_t columns, at::ScalarType type) : rows_(rows) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  // At least one block, so that there are sums to add.
  partial_ = at::zeros({std::max<int64_t>((rows + kBlockRows - 1) / kBlockRows, 1), columns}, at::TensorOptions(type));
}

Range ColumnSums::block(int64_t index) const {
  return {index * kBlockRows, std::min((index + 1) * kBlockRows, rows_)};
}

void ColumnSums::add_to(const at::Tensor& gradient) const {
  AT_DISPATCH_FLOATING_TYPES(partial_.scalar_type(), "add_column_sums", [&] {
    add_rows(sums<scalar_t>(1), num_blocks() - 1, sums<scalar_t>(0), partial_.size(1));
  });
  gradient.add_(partial_[0]);
}

void add_column_sums(const at::Tensor& gradient, const at::Tensor& dy) {
  if (!dy.is_cpu()) {
    device_add_column_sums(gradient, dy);
  } else if (dy.scalar_type() == at::kHalf) {
    const MemoryScope scope(MemoryClass::kWorkspaces);
    add_column_sums(gradient, dy.to(at::kFloat));
  } else {
    const at::Tensor rows = dy.contiguous();
    AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, dy.scalar_type(), "add_column_sums",
                                   [&] { add_on_host<scalar_t>(gradient, rows); });
  }
}

}  // namespace vit_hybrid::kernels
