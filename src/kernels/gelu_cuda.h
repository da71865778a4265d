// GELU, its backward and sums of columns on a GPU: the launches on plain arrays, each asynchronous on `stream`.
#pragma once

#include <cstdint>

#include "src/kernels/element_vector.h"

struct CUstream_st;  // cudaStream_t points to it

namespace vit_hybrid::kernels {

// T: double, float, c10::BFloat16, c10::Half. Sums are of ComputeType<T>.

/// Parts into which `rows` rows of `columns` elements are cut, each with its own sums: enough to fill the device. A
/// function of the shape, the type and the device alone, so that the sums have the same bits each time.
int64_t num_column_sum_parts(int64_t rows, int64_t columns, int64_t element_bytes, int multiprocessors);

/// y = gelu(z), `count` elements, at least one.
template <class T>
void launch_gelu(const T* z, T* y, int64_t count, CUstream_st* stream);

/// dz = dy gelu'(z), matrices [rows, columns], not empty; and partial [parts, columns] becomes dz's sums over the rows
/// of each part, unless it is null.
template <class T>
void launch_gelu_backward(const T* dy, const T* z, T* dz, ComputeType<T>* partial, int64_t rows, int64_t columns,
                          int64_t parts, CUstream_st* stream);

/// partial [parts, columns] becomes dy's sums over the rows of each part.
template <class T>
void launch_column_sums(const T* dy, ComputeType<T>* partial, int64_t rows, int64_t columns, int64_t parts,
                        CUstream_st* stream);

/// gradient [columns] += the sum of the parts, in an order that their number decides.
template <class Sum, class Gradient>
void launch_add_parts(const Sum* partial, Gradient* gradient, int64_t columns, int64_t parts, CUstream_st* stream);

}  // namespace vit_hybrid::kernels
