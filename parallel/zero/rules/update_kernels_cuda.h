// The optimizer's kernels on plain arrays of a GPU. Each launch is asynchronous on `stream`.
#pragma once

#include <cstdint>

#include "parallel/zero/rules/flat_passes.h"
#include "parallel/zero/step_scalars.h"

struct CUstream_st;  // cudaStream_t points to it

namespace vit_hybrid::zero {

/// adam_share() over `count` elements of the state, a multiple of kSegmentAlignment, by one kernel. `step` is on the
/// device; all arrays are aligned to 16 bytes. Instantiated for float and double masters, with the gradients and
/// parameters of cuda_update.h.
template <class Master, class Gradient, class Parameter>
void launch_adam(const AdamArrays<Master, Gradient, Parameter>& arrays, int64_t count,
                 const AdamConstants<Master>& constants, const StepScalars* step, const SegmentTable& segments,
                 CUstream_st* stream);

/// decide() of what `step` points to on the device.
void launch_decide(StepScalars* step, CUstream_st* stream);

/// Blocks, and so pairs of doubles in the workspace, of a sum of squares at most.
inline constexpr int kSquareBlocks = 1024;

/// sums[0] and [1] += square_share() over `count` values. float, double, BFloat16 and Half.
template <class T>
void launch_sum_of_squares(const T* values, int64_t count, double* workspace, double* sums, CUstream_st* stream);

}  // namespace vit_hybrid::zero
