// Epilogues: what follows a product row by row on the host (bias, rounding; GELU: gelu.h), and sums over rows, for
// gradients of biases.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

#include <cstdint>

#include "src/base/partition.h"

namespace vit_hybrid::kernels {

/// y = sums + bias, rounded once.
void store_row(const float* sums, const float* bias, float* y, int64_t count);
void store_row(const float* sums, const float* bias, c10::BFloat16* y, int64_t count);

/// sums <- sums + row for each of the rows [num_rows, count], one after the other.
void add_rows(const float* rows, int64_t num_rows, float* sums, int64_t count);
void add_rows(const double* rows, int64_t num_rows, double* sums, int64_t count);
void add_rows(const c10::BFloat16* rows, int64_t num_rows, float* sums, int64_t count);

/// gradient [M, K] of a half-length type += sums [M, K] of fp32, each rounded once, on the host. Nothing is copied in
/// fp32; rows of `gradient` may lie apart.
void add_rounded(const at::Tensor& gradient, const at::Tensor& sums);

/// gradient [M] += the sum over the rows of dy [R, M]. Sums are fp32, or fp64 for fp64, whatever the types of the two;
/// on the host at memory speed (fp16: converted first), and the bits do not depend on the number of threads.
void add_column_sums(const at::Tensor& gradient, const at::Tensor& dy);

/// The same on a GPU, in a fixed order.
void device_add_column_sums(const at::Tensor& gradient, const at::Tensor& dy);

/// Blocks of ColumnSums.
int64_t num_column_sum_blocks(int64_t rows);

/// The rows of a matrix on the host cut into blocks, each with its own sums, for kernels that add up what they compute.
class ColumnSums {
 public:
  /// `type`: fp32 or fp64.
  ColumnSums(int64_t rows, int64_t columns, at::ScalarType type);

  int64_t num_blocks() const { return partial_.size(0); }
  Range block(int64_t index) const;
  /// The sums of a block, zeros at first.
  template <class T>
  T* sums(int64_t index) const {
    return partial_.mutable_data_ptr<T>() + index * partial_.size(1);
  }
  /// gradient [columns] += the sums of all blocks, in their order.
  void add_to(const at::Tensor& gradient) const;

 private:
  int64_t rows_;
  at::Tensor partial_;  // [blocks, columns]
};

}  // namespace vit_hybrid::kernels
