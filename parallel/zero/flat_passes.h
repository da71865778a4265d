// What one thread does in the optimizer's passes over flat arrays, for device kernels, and for host loops that test
// them.
#pragma once

#include <cmath>
#include <cstdint>

#include "parallel/zero/device_step.h"
#include "parallel/zero/segment_cursor.h"
#include "src/base/element_vector.h"
#include "src/base/vector_split.h"

namespace vit_hybrid::zero {

/// The arrays of an Adam pass. `parameters` may be null: then the weights are the parameters.
template <class Master, class Gradient, class Parameter>
struct AdamArrays {
  Master* weights;
  Master* exp_avg;
  Master* exp_avg_sq;
  const Gradient* gradients;
  Parameter* parameters;
};

/// Elements of an Adam vector: 16 bytes of the master type.
template <class Master>
inline constexpr int kAdamWidth = kVectorWidth<Master>;

/// Updates `kWidth` elements from `first` on.
template <int kWidth, class Master, class Gradient, class Parameter>
VH_HOST_DEVICE inline void adam_vector(const AdamArrays<Master, Gradient, Parameter>& a, int64_t first,
                                       AdamCoefficients<Master>& c, const AdamConstants& constants, double lr,
                                       SegmentCursor& decay) {
  auto weights = load_vector<kWidth>(a.weights + first);
  auto exp_avg = load_vector<kWidth>(a.exp_avg + first);
  auto exp_avg_sq = load_vector<kWidth>(a.exp_avg_sq + first);
  const auto gradients = load_vector<kWidth>(a.gradients + first);
  ElementVector<Parameter, kWidth> parameters;
  VH_UNROLL
  for (int k = 0; k < kWidth; ++k) {
    if (decay.move_to(first + k)) {
      set_weight_decay(c, constants, lr, decay.value());
    }
    adam_element(weights[k], exp_avg[k], exp_avg_sq[k], static_cast<Master>(gradients[k]), c);
    parameters[k] = static_cast<Parameter>(weights[k]);
  }
  store_vector(a.weights + first, weights);
  store_vector(a.exp_avg + first, exp_avg);
  store_vector(a.exp_avg_sq + first, exp_avg_sq);
  if (a.parameters != nullptr) {
    store_vector(a.parameters + first, parameters);
  }
}

/// A thread's share of an Adam pass.
template <class Master, class Gradient, class Parameter>
VH_HOST_DEVICE inline void adam_share(const AdamArrays<Master, Gradient, Parameter>& a, const VectorSplit& split,
                                      const ThreadShare& share, const StepNumbers& step, const AdamConstants& constants,
                                      const SegmentTable& weight_decay) {
  const double lr = step[kStepLr];
  auto c = adam_coefficients<Master>(step, constants, weight_decay.value);
  SegmentCursor vector_decay(weight_decay);
  for (int64_t i = share.first; i < share.end_among(split.vectors); i += share.stride) {
    adam_vector<kAdamWidth<Master>>(a, split.vector(i), c, constants, lr, vector_decay);
  }
  SegmentCursor single_decay(weight_decay);
  for (int64_t i = share.first; i < share.end_among(split.num_singles()); i += share.stride) {
    adam_vector<1>(a, split.single(i), c, constants, lr, single_decay);
  }
}

/// Sum of squares of the finite values, and how many are not finite.
struct SquareCount {
  double sum = 0.0;
  double not_finite = 0.0;
};

/// Adds one value that counts `weight` times.
template <class T>
VH_HOST_DEVICE inline void add_square(SquareCount& total, T value, double weight) {
  const auto narrow = static_cast<ComputeType<T>>(value);
  const bool finite = narrow - narrow == 0;  // not of infinities, and not of what is no number
  const auto wide = static_cast<double>(narrow);
  total.sum += finite ? weight * (wide * wide) : 0.0;
  total.not_finite += finite ? 0.0 : weight;
}

/// A thread's share of a sum of squares.
template <class T>
VH_HOST_DEVICE inline SquareCount square_share(const T* values, const VectorSplit& split, const ThreadShare& share,
                                               const SegmentTable& counts) {
  SquareCount total;
  SegmentCursor vector_count(counts);
  for (int64_t i = share.first; i < share.end_among(split.vectors); i += share.stride) {
    const int64_t first = split.vector(i);
    const auto vector = load_vector<kVectorWidth<T>>(values + first);
    VH_UNROLL
    for (int k = 0; k < kVectorWidth<T>; ++k) {
      vector_count.move_to(first + k);
      add_square(total, vector[k], vector_count.value());
    }
  }
  SegmentCursor single_count(counts);
  for (int64_t i = share.first; i < share.end_among(split.num_singles()); i += share.stride) {
    const int64_t element = split.single(i);
    single_count.move_to(element);
    add_square(total, values[element], single_count.value());
  }
  return total;
}

}  // namespace vit_hybrid::zero
