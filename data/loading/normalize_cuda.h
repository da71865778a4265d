// The normalization of a batch: the arithmetic of a value, which host and GPU share, and on a GPU the work of a thread
// and the launches.
#pragma once

#include <cstdint>

#include "src/kernels/element_vector.h"

struct CUstream_st;  // cudaStream_t points to it

namespace vit_hybrid::data {

inline constexpr int kColors = 3;
inline constexpr int kByteValues = 256;

/// A difference and a quotient cannot be contracted: the same bits everywhere (nvcc divides as IEEE does unless told
/// otherwise).
VH_HOST_DEVICE inline float normalized_value(float value, float mean, float std) {
  return (value - mean) / std;
}

/// What bytes of images become: a byte has 256 values, and each is normalized once.
template <class T>
struct ByteTable {
  T values[kColors * kByteValues];

  VH_HOST_DEVICE T of(int color, uint8_t byte) const { return values[color * kByteValues + byte]; }
  /// Makes the entries first, first + stride, ...; mean and std: [3].
  VH_HOST_DEVICE void fill(const float* mean, const float* std, int first, int stride) {
    constexpr float kWhite = 255.0F;
    for (int i = first; i < kColors * kByteValues; i += stride) {
      const int color = i / kByteValues;
      const auto byte = static_cast<float>(i % kByteValues);
      values[i] = static_cast<T>(normalized_value(byte / kWhite, mean[color], std[color]));
    }
  }
};

/// Bytes [images, pixels, 3] that become planes [images, 3, pixels]; mean and std: [3].
template <class T>
struct ImagePass {
  const uint8_t* bytes;
  const float* mean;
  const float* std;
  T* planes;
  int64_t images;
  int64_t pixels;
};

/// Values [planes, plane] that are normalized as the channel `plane % channels` is; mean and std: [channels].
template <class T>
struct FieldPass {
  const float* values;
  const float* mean;
  const float* std;
  T* normalized;
  int64_t planes;
  int64_t plane;
  int64_t channels;
};

/// Normalizes `kWidth` pixels of an image from `pixel` on. kWidth divides `pixels`, and arrays are aligned for it.
template <int kWidth, class T>
VH_HOST_DEVICE inline void normalize_pixels(const ImagePass<T>& pass, const ByteTable<T>& table, int64_t image,
                                            int64_t pixel) {
  const int64_t begin = image * pass.pixels * kColors;
  kernels::ElementVector<uint8_t, kWidth> bytes[kColors];  // color by color of pixel by pixel
  VH_UNROLL
  for (int i = 0; i < kColors; ++i) {
    bytes[i] = kernels::load_vector<kWidth>(pass.bytes + begin + pixel * kColors + i * kWidth);
  }
  VH_UNROLL
  for (int color = 0; color < kColors; ++color) {
    kernels::ElementVector<T, kWidth> values;
    VH_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      const int place = i * kColors + color;
      values[i] = table.of(color, bytes[place / kWidth][place % kWidth]);
    }
    kernels::store_vector(pass.planes + begin + color * pass.pixels + pixel, values);
  }
}

/// The same for `kWidth` values of a plane of fields from `place` on; mean and std: of its channel.
template <int kWidth, class T>
VH_HOST_DEVICE inline void normalize_values(const FieldPass<T>& pass, int64_t plane, int64_t place, float mean,
                                            float std) {
  const auto values = kernels::load_vector<kWidth>(pass.values + plane * pass.plane + place);
  kernels::ElementVector<T, kWidth> normalized;
  VH_UNROLL
  for (int i = 0; i < kWidth; ++i) {
    normalized[i] = static_cast<T>(normalized_value(values[i], mean, std));
  }
  kernels::store_vector(pass.normalized + plane * pass.plane + place, normalized);
}

/// The whole pass, asynchronous on `stream`: 16 bytes are written at a time where planes and arrays are aligned for it,
/// else one value. float, double, BFloat16 and Half.
template <class T>
void launch_normalize(const ImagePass<T>& pass, CUstream_st* stream);
template <class T>
void launch_normalize(const FieldPass<T>& pass, CUstream_st* stream);

}  // namespace vit_hybrid::data
