// Normalization's kernels on plain arrays of a GPU. Each launch is asynchronous on `stream`.
#pragma once

#include <cstdint>

#include "data/loading/normalize_passes.h"

struct CUstream_st;  // cudaStream_t points to it

namespace vit_hybrid::data {

/// float, double, BFloat16 and Half.
template <class T>
void launch_normalize_planes(const PlanePass<T>& pass, int64_t samples, CUstream_st* stream);
template <class T>
void launch_normalize_images(const ImagePass<T>& pass, int64_t samples, CUstream_st* stream);

}  // namespace vit_hybrid::data
