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

/// The sums over rows for the parameters' gradients are added up in parts, each by one block.
struct NormParts {
  int64_t parts;
  int64_t features;
  int sums;  ///< of a column: of dy x^ and of dy, and of dx where there are three

  /// Elements of ComputeType<T> that the parts take: [parts, sums, features].
  int64_t num_elements() const { return parts * sums * features; }
};

/// As many parts as run at once on a device with so many multiprocessors: what the order of the sums depends on.
/// `sums_dx`: they are to add up dx too, which they do for rows of half-length types, of up to kMostInRegisters
/// features, in whole aligned vectors. (For others registers do not suffice.)
template <class T>
NormParts norm_parts(const NormBackward<T>& arrays, int num_multiprocessors, bool sums_dx);

/// dx, and the sums of each part into `partial`. Rows of up to kMostInBlock features are read once, and the sums of a
/// part are kept in registers over all of its rows.
template <class T>
void launch_norm_backward(const NormBackward<T>& arrays, const NormParts& parts, ComputeType<T>* partial,
                          CUstream_st* stream);

/// Adds the parts, in their order, to the gradients of weight and bias, and that of the bias that was added to x where
/// there are three sums: F float or double, G any type.
template <class F, class G>
void launch_add_norm_parts(const NormParts& parts, const F* partial, G* weight, G* bias, G* added_bias,
                           CUstream_st* stream);

}  // namespace vit_hybrid::kernels
