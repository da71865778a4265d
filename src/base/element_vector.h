// Elements that a device kernel reads and writes 16 bytes at a time, and the type it computes in.
#pragma once

#include <cstdint>
#include <type_traits>

#include "src/base/host_device.h"

namespace vit_hybrid {

/// What is computed in for elements of type T: double for double, else float.
template <class T>
using ComputeType = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Elements of 16 bytes.
template <class T>
inline constexpr int kVectorWidth = 16 / static_cast<int>(sizeof(T));

/// `kWidth` neighbouring elements, aligned so that they move in accesses of up to 16 bytes.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth < 16 ? sizeof(T) * kWidth : 16) ElementVector {
  T values[kWidth];

  VH_HOST_DEVICE T& operator[](int i) { return values[i]; }
  VH_HOST_DEVICE const T& operator[](int i) const { return values[i]; }
};

/// The elements at `data`, which must be aligned as ElementVector is.
template <int kWidth, class T>
VH_HOST_DEVICE inline ElementVector<T, kWidth> load_vector(const T* data) {
  return *reinterpret_cast<const ElementVector<T, kWidth>*>(data);
}
/// To global memory. Device code stores whole words: nvcc would make a store of each element of a copied vector.
template <class T, int kWidth>
VH_HOST_DEVICE inline void store_vector(T* data, const ElementVector<T, kWidth>& vector) {
  using Vector = ElementVector<T, kWidth>;
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(Vector) >= 8) {
    using Word = std::conditional_t<sizeof(Vector) % 16 == 0, uint4, uint2>;
    VH_UNROLL
    for (size_t i = 0; i < sizeof(Vector) / sizeof(Word); ++i) {
      Word word;
      memcpy(&word, reinterpret_cast<const char*>(&vector) + i * sizeof(Word), sizeof(Word));
      __stwb(reinterpret_cast<Word*>(data) + i, word);
    }
  } else {
    *reinterpret_cast<Vector*>(data) = vector;
  }
#else
  *reinterpret_cast<Vector*>(data) = vector;
#endif
}

/// The product or sum in the computing type, rounded once to T.
template <class T>
VH_HOST_DEVICE inline T rounded(ComputeType<T> value) {
  return static_cast<T>(value);
}

}  // namespace vit_hybrid
