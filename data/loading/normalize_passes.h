// What one thread does when a batch as it was stored is normalized: planes of numbers, or images of bytes.
#pragma once

#include <cstdint>

#include "src/base/element_vector.h"
#include "src/base/vector_split.h"

namespace vit_hybrid::data {

/// fp32 from the channel's statistics, in which products and sums cannot be contracted: the same bits everywhere.
VH_HOST_DEVICE inline float normalized_value(float value, float mean, float std) {
  return (value - mean) / std;
}
/// Of a colour 0 .. 255, the statistics being those of 0 .. 1.
VH_HOST_DEVICE inline float normalized_color(uint8_t color, float mean, float std) {
  return normalized_value(static_cast<float>(color) / 255.0f, mean, std);
}

/// Planes [samples, channels, plane] of fp32 as planes of T.
template <class T>
struct PlanePass {
  const float* from;
  T* to;
  const float* mean;  ///< [channels]
  const float* std;
  int64_t channels;
  int64_t plane;  ///< elements
};

template <int kWidth, class T>
VH_HOST_DEVICE inline void normalize_plane_vector(const PlanePass<T>& p, int64_t element, float mean, float std) {
  const auto from = load_vector<kWidth>(p.from + element);
  ElementVector<T, kWidth> to;
  VH_UNROLL
  for (int k = 0; k < kWidth; ++k) {
    to[k] = static_cast<T>(normalized_value(from[k], mean, std));
  }
  store_vector(p.to + element, to);
}

/// Elements of a vector: 16 bytes of the input.
inline constexpr int kPlaneWidth = kVectorWidth<float>;

/// The split of a plane, the same for all planes.
template <class T>
VectorSplit plane_split(const PlanePass<T>& p) {
  const VectorSplit split = make_vector_split(p.plane, kPlaneWidth, {{p.from, sizeof(float)}, {p.to, sizeof(T)}});
  return p.plane % kPlaneWidth == 0 ? split : VectorSplit{p.plane, p.plane, 0, kPlaneWidth};
}

/// A thread's share of plane `plane` of all samples' planes.
template <class T>
VH_HOST_DEVICE inline void normalize_plane_share(const PlanePass<T>& p, int64_t plane, const VectorSplit& split,
                                                 const ThreadShare& share) {
  const float mean = p.mean[plane % p.channels];
  const float std = p.std[plane % p.channels];
  const int64_t begin = plane * p.plane;
  for (int64_t i = share.first; i < share.end_among(split.vectors); i += share.stride) {
    normalize_plane_vector<kPlaneWidth>(p, begin + split.vector(i), mean, std);
  }
  for (int64_t i = share.first; i < share.end_among(split.num_singles()); i += share.stride) {
    normalize_plane_vector<1>(p, begin + split.single(i), mean, std);
  }
}

inline constexpr int kColors = 3;

/// Images [samples, pixels, 3] of bytes as planes [samples, 3, pixels] of T.
template <class T>
struct ImagePass {
  const uint8_t* from;
  T* to;
  const float* mean;  ///< [3]
  const float* std;
  int64_t pixels;  ///< of an image
};

/// `kWidth` pixels of an image, all three colours.
template <int kWidth, class T>
VH_HOST_DEVICE inline void normalize_pixels(const ImagePass<T>& p, int64_t image, int64_t pixel) {
  // In vectors of kWidth bytes, because three times as many are not aligned to more.
  ElementVector<uint8_t, kWidth> bytes[kColors];
  const uint8_t* const from = p.from + (image * p.pixels + pixel) * kColors;
  VH_UNROLL
  for (int i = 0; i < kColors; ++i) {
    bytes[i] = load_vector<kWidth>(from + i * kWidth);
  }
  VH_UNROLL
  for (int color = 0; color < kColors; ++color) {
    const float mean = p.mean[color];
    const float std = p.std[color];
    ElementVector<T, kWidth> to;
    VH_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      const int byte = k * kColors + color;
      to[k] = static_cast<T>(normalized_color(bytes[byte / kWidth][byte % kWidth], mean, std));
    }
    store_vector(p.to + (image * kColors + color) * p.pixels + pixel, to);
  }
}

/// Pixels of a vector.
inline constexpr int kPixelWidth = 4;

/// The split of an image's pixels, the same for all images: vectors where 4 pixels are 3 aligned words.
template <class T>
VectorSplit pixel_split(const ImagePass<T>& p) {
  const VectorSplit split = make_vector_split(p.pixels, kPixelWidth, {{p.from, 1}, {p.to, sizeof(T)}});
  return split.head == 0 && split.num_singles() == 0 ? split : VectorSplit{p.pixels, p.pixels, 0, kPixelWidth};
}

/// A thread's share of an image.
template <class T>
VH_HOST_DEVICE inline void normalize_image_share(const ImagePass<T>& p, int64_t image, const VectorSplit& split,
                                                 const ThreadShare& share) {
  for (int64_t i = share.first; i < share.end_among(split.vectors); i += share.stride) {
    normalize_pixels<kPixelWidth>(p, image, split.vector(i));
  }
  for (int64_t i = share.first; i < share.end_among(split.num_singles()); i += share.stride) {
    normalize_pixels<1>(p, image, split.single(i));
  }
}

}  // namespace vit_hybrid::data
