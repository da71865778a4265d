// The field error's kernels on plain arrays of a GPU. Each launch is asynchronous on `stream`.
#pragma once

#include <cstdint>

#include "src/kernels/field_passes.h"

struct CUstream_st;  // cudaStream_t points to it

namespace vit_hybrid::kernels {

/// Pairs of doubles that launch_field_squares() needs for each sample.
inline constexpr int kFieldParts = 256;

/// squares[0, n] and [1, n] = the sums of sample n, in two stages, in an order that depends on the shape alone. A
/// sample has less than 2^31 elements. float, double, BFloat16 and Half.
template <class T>
void launch_field_squares(const FieldArrays<T>& arrays, int64_t samples, double* workspace, double* squares,
                          CUstream_st* stream);

template <class T>
void launch_field_gradient(const FieldArrays<T>& arrays, int64_t samples, CUstream_st* stream);

}  // namespace vit_hybrid::kernels
