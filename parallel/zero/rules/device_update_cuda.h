// Adam's step, sums of squares and the step's decision on a GPU: the work of a thread, and the launches on plain
// arrays, each asynchronous on `stream`.
#pragma once

#include <cstdint>
#include <type_traits>

#include "parallel/zero/rules/step_arithmetic.h"
#include "parallel/zero/rules/table_cursor.h"
#include "src/kernels/element_vector.h"

struct CUstream_st;  // cudaStream_t points to it

namespace vit_hybrid::zero {

/// The arrays of an Adam pass over the state of the owned elements. Where Parameter is Master, the parameters are the
/// master weights, and `master` is null.
template <class Master, class Gradient, class Parameter>
struct AdamArrays {
  Master* master;  ///< as exp_avg and exp_avg_sq by element of the state
  Master* exp_avg;
  Master* exp_avg_sq;
  const Gradient* gradients;  ///< as the parameters by element of the flat buffers
  Parameter* parameters;
};

/// Elements of an Adam vector: 16 bytes of the master type.
template <class Master>
inline constexpr int kAdamWidth = kernels::kVectorWidth<Master>;

/// Updates a vector: the elements of the state from `first` on, those of the flat buffers from `flat` on.
template <class Master, class Gradient, class Parameter>
VH_HOST_DEVICE inline void adam_vector(const AdamArrays<Master, Gradient, Parameter>& a, int64_t first, int64_t flat,
                                       const AdamCoefficients<Master>& c) {
  constexpr int kWidth = kAdamWidth<Master>;
  constexpr bool kOwnMaster = !std::is_same_v<Master, Parameter>;
  Master* weights_at = nullptr;
  if constexpr (kOwnMaster) {
    weights_at = a.master + first;
  } else {
    weights_at = a.parameters + flat;
  }
  auto weights = kernels::load_vector<kWidth>(weights_at);
  auto exp_avg = kernels::load_vector<kWidth>(a.exp_avg + first);
  auto exp_avg_sq = kernels::load_vector<kWidth>(a.exp_avg_sq + first);
  const auto gradients = kernels::load_vector<kWidth>(a.gradients + flat);
  VH_UNROLL
  for (int k = 0; k < kWidth; ++k) {
    adam_element(weights[k], exp_avg[k], exp_avg_sq[k], static_cast<Master>(gradients[k]), c);
  }
  kernels::store_vector(weights_at, weights);
  kernels::store_vector(a.exp_avg + first, exp_avg);
  kernels::store_vector(a.exp_avg_sq + first, exp_avg_sq);
  if constexpr (kOwnMaster) {
    kernels::ElementVector<Parameter, kWidth> parameters;
    VH_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      parameters[k] = static_cast<Parameter>(weights[k]);
    }
    kernels::store_vector(a.parameters + flat, parameters);
  }
}

/// A thread's share of an Adam pass over `vectors` vectors; nothing of a skipped step.
template <class Master, class Gradient, class Parameter>
VH_HOST_DEVICE inline void adam_share(const AdamArrays<Master, Gradient, Parameter>& a, int64_t vectors,
                                      const kernels::ThreadShare& share, const AdamConstants<Master>& constants,
                                      const StepScalars& step, const SegmentTable& segments) {
  static_assert(kSegmentAlignment % kAdamWidth<Master> == 0, "a vector would lie in two segments");
  if (step.is_skipped()) {
    return;
  }
  const AdamDecay decay = adam_decay(constants, step);
  auto c = adam_coefficients(constants, step);
  TableCursor segment(segments);
  for (int64_t i = share.first; i < share.end_among(vectors); i += share.stride) {
    const int64_t first = i * kAdamWidth<Master>;
    if (segment.move_to(first)) {
      set_weight_decay(c, decay, segment.entry().weight_decay);
    }
    adam_vector(a, first, first + segment.entry().shift, c);
  }
}

/// Sum of squares of the finite values, and how many are not finite.
struct SquareCount {
  double sum = 0.0;
  double not_finite = 0.0;
};

/// Adds one value.
template <class T>
VH_HOST_DEVICE inline void add_square(SquareCount& total, T value) {
  const auto narrow = static_cast<kernels::ComputeType<T>>(value);
  const bool finite = narrow - narrow == 0;  // not of infinities, and not of what is no number
  const auto wide = static_cast<double>(narrow);
  total.sum += finite ? wide * wide : 0.0;
  total.not_finite += finite ? 0.0 : 1.0;
}

/// The ranges of an array whose squares are summed.
struct SummedRanges {
  Table<CountedRange> table;  ///< on the device; without entries: of `last` alone
  CountedRange last;
};

/// Adds vector `i` of the walk through the ranges, as far as it lies in its range.
template <class T>
VH_HOST_DEVICE inline void add_squares(SquareCount& total, const T* values, int64_t i, const CountedRange& range) {
  constexpr int kWidth = kernels::kVectorWidth<T>;
  const int64_t first = (i + range.shift) * kWidth;
  if (first >= range.first && first + kWidth <= range.end) {
    const auto vector = kernels::load_vector<kWidth>(values + first);
    VH_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      add_square(total, vector[k]);
    }
    return;
  }
  for (int64_t k = first; k < first + kWidth; ++k) {
    if (k >= range.first && k < range.end) {
      add_square(total, values[k]);
    }
  }
}

/// A thread's share of a sum of squares.
template <class T>
VH_HOST_DEVICE inline SquareCount square_share(const T* values, const SummedRanges& ranges,
                                               const kernels::ThreadShare& share) {
  SquareCount total;
  TableCursor range(ranges.table, ranges.last);
  const int64_t vectors = ranges.last.next_begin(kernels::kVectorWidth<T>);
  for (int64_t i = share.first; i < share.end_among(vectors); i += share.stride) {
    range.move_to(i);
    add_squares(total, values, i, range.entry());
  }
  return total;
}

/// adam_share() over `count` elements of the state, a multiple of kSegmentAlignment, by one kernel. `step` is on the
/// device; all arrays are aligned to 16 bytes. Instantiated for float and double masters, with the gradients and
/// parameters of device_update.h.
template <class Master, class Gradient, class Parameter>
void launch_adam(const AdamArrays<Master, Gradient, Parameter>& arrays, int64_t count,
                 const AdamConstants<Master>& constants, const StepScalars* step, const SegmentTable& segments,
                 CUstream_st* stream);

/// decide() of what `step` points to on the device.
void launch_decide(StepScalars* step, CUstream_st* stream);

/// Blocks, and so pairs of doubles in the workspace, of a sum of squares at most.
inline constexpr int kSquareBlocks = 1024;

/// sums[0] and [1] += square_share() over all of `ranges`, in two launches. `values` are aligned to 16 bytes. float,
/// double, BFloat16 and Half.
template <class T>
void launch_sum_of_squares(const T* values, const SummedRanges& ranges, double* workspace, double* sums,
                           CUstream_st* stream);

}  // namespace vit_hybrid::zero
