// Blocks of rows of a panel are filled in parallel.
#include "src/kernels/gemm/panels.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "src/kernels/gemm/pair_layout.h"
#include "src/kernels/gemm/transpose.h"

namespace vit_hybrid::kernels {

namespace {

using c10::BFloat16;

void pack(const float* from, int64_t stride, int64_t rows, int64_t columns, float* to) {
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(from + row * stride, columns, to + row * kPanelColumns<float>);
  }
}

void pack(const BFloat16* from, int64_t stride, int64_t rows, int64_t columns, BFloat16* to) {
  pack_pairs(from, stride, rows, columns, to, kPanelColumns<BFloat16>);
}

void pack_transposed(const float* from, int64_t stride, int64_t rows, int64_t columns, float* to) {
  transpose_block(from, stride, rows, columns, to, kPanelColumns<float>);
}

void pack_transposed(const BFloat16* from, int64_t stride, int64_t rows, int64_t columns, BFloat16* to) {
  pack_transposed_pairs(from, stride, rows, columns, to, kPanelColumns<BFloat16>);
}

// fill(rows, columns, to) for every block of the rows of every panel of a matrix [depth, columns].
template <class T, class Fill>
at::Tensor fill_panels(int64_t depth, int64_t num_columns, const at::Tensor& reuse, const Fill& fill) {
  const int64_t panels = num_blocks(num_columns, kPanelColumns<T>);
  const int64_t rows_of_panel = pairs_size(depth, 1);
  at::Tensor packed = reuse.defined() ? reuse
                                      : at::empty({panels, rows_of_panel, kPanelColumns<T>},
                                                  at::TensorOptions(c10::CppTypeToScalarType<T>::value));
  const int64_t blocks = num_blocks(depth, kPanelDepth<T>);
  at::parallel_for(0, panels * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t panel = task / blocks;
      const Range rows = block_range(task % blocks, kPanelDepth<T>, depth);
      fill(rows, block_range(panel, kPanelColumns<T>, num_columns),
           packed.mutable_data_ptr<T>() + (panel * rows_of_panel + rows.begin) * kPanelColumns<T>);
    }
  });
  return packed;
}

template <class T>
at::Tensor pack_matrix(const at::Tensor& matrix, const at::Tensor& reuse) {
  const T* const from = matrix.const_data_ptr<T>();
  const int64_t stride = matrix.size(1);
  return fill_panels<T>(matrix.size(0), stride, reuse, [=](Range rows, Range columns, T* to) {
    pack(from + rows.begin * stride + columns.begin, stride, rows.size(), columns.size(), to);
  });
}

template <class T>
at::Tensor pack_transposed_matrix(const at::Tensor& matrix, const at::Tensor& reuse) {
  const T* const from = matrix.const_data_ptr<T>();
  const int64_t stride = matrix.size(1);
  return fill_panels<T>(stride, matrix.size(0), reuse, [=](Range rows, Range columns, T* to) {
    pack_transposed(from + columns.begin * stride + rows.begin, stride, columns.size(), rows.size(), to);
  });
}

}  // namespace

at::Tensor pack_panels(const at::Tensor& matrix, const at::Tensor& reuse) {
  return matrix.scalar_type() == at::kFloat ? pack_matrix<float>(matrix, reuse) : pack_matrix<BFloat16>(matrix, reuse);
}

at::Tensor pack_transposed_panels(const at::Tensor& matrix, const at::Tensor& reuse) {
  return matrix.scalar_type() == at::kFloat ? pack_transposed_matrix<float>(matrix, reuse)
                                            : pack_transposed_matrix<BFloat16>(matrix, reuse);
}

}  // namespace vit_hybrid::kernels
