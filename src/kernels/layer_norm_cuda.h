// LayerNorm on a GPU: the launches on plain arrays, each asynchronous on `stream`.
#pragma once

#include <cstdint>

#include "src/kernels/layer_norm_arithmetic.h"

struct CUstream_st;  // cudaStream_t points to it

namespace vit_hybrid::kernels {

/// Features of a row that the registers of a warp hold, and those of a block.
inline constexpr int kMostInRegisters = 1280;
inline constexpr int kMostInBlock = 4096;

/// Any number of features and alignment; rows of up to kMostInRegisters features, of whole aligned vectors, are read
/// once. float, double, BFloat16 and Half.
template <class T>
void launch_norm(const NormForward<T>& arrays, CUstream_st* stream);

/// The sums of the weights' gradients over rows are added up in parts, each by one block.
struct NormParts {
  int64_t parts;
  int64_t rows;
  int64_t features;

  /// Elements of ComputeType<T> that the parts take: [parts, 2, features].
  int64_t num_elements() const { return parts * 2 * features; }
};

/// As many parts as run at once on a device with so many multiprocessors: what the order of the sums depends on. T:
/// type of the elements.
template <class T>
NormParts norm_parts(int64_t rows, int64_t features, int num_multiprocessors);

/// dx, and the sums of dy x^ and dy of each part into `partial`. Rows of up to kMostInBlock features are read once, and
/// the sums of a part are kept in registers over all of its rows.
template <class T>
void launch_norm_backward(const NormBackward<T>& arrays, const NormParts& parts, ComputeType<T>* partial,
                          CUstream_st* stream);

/// Adds the parts, in their order, to the gradients of weight and bias: F float or double, G any type.
template <class F, class G>
void launch_add_norm_parts(const NormParts& parts, const F* partial, G* weight, G* bias, CUstream_st* stream);

}  // namespace vit_hybrid::kernels
