// The error of fields and its gradient: the arithmetic of host and device, and on a GPU the work of a thread, and the
// launches on plain arrays, each asynchronous on `stream`.
#pragma once

#include <cstdint>

#include "src/base/instruction_sets.h"
#include "src/kernels/element_vector.h"

struct CUstream_st;  // cudaStream_t points to it

namespace vit_hybrid::kernels {

/// What of an error is added up: its square, or its absolute value.
enum class ErrorPower { kSquare, kAbsolute };

/// Sums of such powers of the differences and of the truth.
struct FieldSums {
  double error = 0.0;
  double truth = 0.0;
};

VH_HOST_DEVICE inline double power_of(double value, ErrorPower power) {
  return power == ErrorPower::kSquare ? value * value : value < 0.0 ? -value : value;
}

/// One element of the gradient: the error, or its sign (0 of 0, NaN of NaN), times a factor; that may hold a loss
/// scale, so the product is made in double.
template <class F>
VH_HOST_DEVICE inline F error_gradient(F prediction, F truth, double factor, ErrorPower power) {
  const auto error = static_cast<double>(prediction - truth);
  const double slope = power == ErrorPower::kSquare ? error : error > 0.0 ? 1.0 : error < 0.0 ? -1.0 : error;
  return static_cast<F>(slope * factor);
}

/// A PatchGrid in numbers that divide fast. Elements of a sample are numbered as in its patches: patch by patch, in
/// each (row, column, channel), the channel fastest.
struct PatchPlaces {
  uint32_t columns;  ///< of patches
  uint32_t patch_height;
  uint32_t patch_width;
  uint32_t channels;
  uint32_t height;  ///< of the field
  uint32_t width;
  int64_t channel;  ///< elements of a channel of the field
};

/// Where an element of the patches lies in the field; goes on element by element without dividing.
class FieldPlace {
 public:
  VH_HOST_DEVICE FieldPlace(const PatchPlaces& places, uint32_t element) : places_(places) {
    const uint32_t pixel = element / places.channels;
    channel_ = element % places.channels;
    column_ = pixel % places.patch_width;
    const uint32_t row = pixel / places.patch_width;  // of all patches one above the other
    row_ = row % places.patch_height;
    patch_ = row / places.patch_height;
    set_pixel();
  }

  VH_HOST_DEVICE uint32_t channel() const { return channel_; }
  /// Of the field, where it is inside.
  VH_HOST_DEVICE uint32_t row() const { return field_row_; }
  /// Whether it is one of the field's; else it is padded, and has no offset.
  VH_HOST_DEVICE bool is_inside() const { return pixel_ >= 0; }
  /// Offset in the fields of the sample.
  VH_HOST_DEVICE int64_t offset() const { return channel_ * places_.channel + pixel_; }

  VH_HOST_DEVICE void go_on() {
    if (++channel_ < places_.channels) {
      return;
    }
    channel_ = 0;
    if (++column_ == places_.patch_width) {
      column_ = 0;
      if (++row_ == places_.patch_height) {
        row_ = 0;
        ++patch_;
      }
    }
    set_pixel();
  }

 private:
  VH_HOST_DEVICE void set_pixel() {
    field_row_ = patch_ / places_.columns * places_.patch_height + row_;
    const uint32_t column = patch_ % places_.columns * places_.patch_width + column_;
    const bool is_inside = field_row_ < places_.height && column < places_.width;
    pixel_ = is_inside ? static_cast<int64_t>(field_row_) * places_.width + column : -1;
  }

  PatchPlaces places_;
  uint32_t channel_, column_, row_, patch_, field_row_;
  int64_t pixel_;
};

/// Patches and fields of all samples; `gradient` is written, or null.
template <class T>
struct FieldArrays {
  using F = ComputeType<T>;
  const T* prediction;
  const F* truth;
  T* gradient;
  const double* factors;  ///< of samples, or null
  int64_t elements;       ///< of a sample's patches
  PatchPlaces places;
  ErrorPower power = ErrorPower::kSquare;
  const double* row_weights = nullptr;      ///< of the field's rows, or null
  const double* channel_weights = nullptr;  ///< or null

  /// Of a place inside.
  VH_HOST_DEVICE double weight(const FieldPlace& place) const {
    const double of_row = row_weights == nullptr ? 1.0 : row_weights[place.row()];
    return channel_weights == nullptr ? of_row : of_row * channel_weights[place.channel()];
  }
};

/// Visits `kWidth` elements of a sample from `first` on: visit(k, prediction, truth, weight), all zero where it is
/// padded.
template <int kWidth, class T, class Visit>
VH_HOST_DEVICE inline void visit_field_vector(const FieldArrays<T>& a, int64_t sample, uint32_t first,
                                              const Visit& visit) {
  using F = ComputeType<T>;
  const auto prediction = load_vector<kWidth>(a.prediction + sample * a.elements + first);
  const F* const truth = a.truth + sample * a.places.channels * a.places.channel;
  FieldPlace place(a.places, first);
  VH_UNROLL
  for (int k = 0; k < kWidth; ++k) {
    const bool is_inside = place.is_inside();
    visit(k, is_inside ? static_cast<F>(prediction[k]) : F(0), is_inside ? truth[place.offset()] : F(0),
          is_inside ? a.weight(place) : 0.0);
    place.go_on();
  }
}

/// The sums over a thread's share of a sample.
template <class T>
VH_HOST_DEVICE inline FieldSums field_sums_share(const FieldArrays<T>& a, int64_t sample, const VectorSplit& split,
                                                 const ThreadShare& share) {
  using F = ComputeType<T>;
  FieldSums sums;
  const auto add = [&sums, power = a.power](int /*k*/, F prediction, F truth, double weight) {
    sums.error += weight * power_of(static_cast<double>(prediction - truth), power);
    sums.truth += weight * power_of(static_cast<double>(truth), power);
  };
  for (int64_t i = share.first; i < share.end_among(split.vectors); i += share.stride) {
    visit_field_vector<kVectorWidth<T>>(a, sample, static_cast<uint32_t>(split.vector(i)), add);
  }
  for (int64_t i = share.first; i < share.end_among(split.num_singles()); i += share.stride) {
    visit_field_vector<1>(a, sample, static_cast<uint32_t>(split.single(i)), add);
  }
  return sums;
}

template <int kWidth, class T>
VH_HOST_DEVICE inline void field_gradient_vector(const FieldArrays<T>& a, int64_t sample, uint32_t first) {
  using F = ComputeType<T>;
  const double factor = a.factors[sample];
  ElementVector<T, kWidth> gradient;
  const auto set = [&gradient, factor, power = a.power](int k, F prediction, F truth, double weight) {
    gradient[k] = static_cast<T>(error_gradient(prediction, truth, weight * factor, power));
  };
  visit_field_vector<kWidth>(a, sample, first, set);
  store_vector(a.gradient + sample * a.elements + first, gradient);
}

/// The gradient of a thread's share of a sample.
template <class T>
VH_HOST_DEVICE inline void field_gradient_share(const FieldArrays<T>& a, int64_t sample, const VectorSplit& split,
                                                const ThreadShare& share) {
  for (int64_t i = share.first; i < share.end_among(split.vectors); i += share.stride) {
    field_gradient_vector<kVectorWidth<T>>(a, sample, static_cast<uint32_t>(split.vector(i)));
  }
  for (int64_t i = share.first; i < share.end_among(split.num_singles()); i += share.stride) {
    field_gradient_vector<1>(a, sample, static_cast<uint32_t>(split.single(i)));
  }
}

/// The split of a sample's elements, the same for all samples.
template <class T>
VectorSplit field_split(const FieldArrays<T>& a) {
  const VectorSplit split =
      make_vector_split(a.elements, kVectorWidth<T>, {{a.prediction, sizeof(T)}, {a.gradient, sizeof(T)}});
  return a.elements % split.width == 0 ? split : VectorSplit{a.elements, a.elements, 0, split.width};
}

/// Pairs of doubles that launch_field_sums() needs for each sample.
inline constexpr int kFieldParts = 256;

/// sums[0, n] and [1, n] = the sums of sample n, in two stages, in an order that depends on the shape alone. A
/// sample has less than 2^31 elements. float, double, BFloat16 and Half.
template <class T>
void launch_field_sums(const FieldArrays<T>& arrays, int64_t samples, double* workspace, double* sums,
                       CUstream_st* stream);

template <class T>
void launch_field_gradient(const FieldArrays<T>& arrays, int64_t samples, CUstream_st* stream);

}  // namespace vit_hybrid::kernels
