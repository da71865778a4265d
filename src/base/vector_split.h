// VectorSplit: which elements of flat arrays a kernel takes as aligned vectors and which one by one; ThreadShare:
// whose.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "src/base/host_device.h"

namespace vit_hybrid {

/// `count` elements are `head` single ones, `vectors` vectors of `width`, and a tail of single ones.
struct VectorSplit {
  int64_t count = 0;
  int64_t head = 0;
  int64_t vectors = 0;
  int width = 1;

  /// First element of vector i.
  VH_HOST_DEVICE int64_t vector(int64_t i) const { return head + i * width; }
  VH_HOST_DEVICE int64_t num_singles() const { return count - vectors * width; }
  /// The larger of the two: what threads must be there for.
  int64_t num_items() const { return vectors > num_singles() ? vectors : num_singles(); }
  /// Single element i, of the head and then the tail.
  VH_HOST_DEVICE int64_t single(int64_t i) const { return i < head ? i : i + vectors * width; }
};

/// The vectors, or single elements, that one thread takes: first, first + stride, ... below `end`. The threads of a
/// block take neighbours, and a block takes `threads * per_thread` of them.
struct ThreadShare {
  int64_t first = 0;
  int64_t end = 0;
  int64_t stride = 1;

  VH_HOST_DEVICE static ThreadShare of(int64_t block, int thread, int threads, int64_t per_thread) {
    const int64_t begin = block * threads * per_thread;
    return {begin + thread, begin + threads * per_thread, threads};
  }
  /// The end of the share among `count` of them.
  VH_HOST_DEVICE int64_t end_among(int64_t count) const { return end < count ? end : count; }
};

/// Blocks of `of_block` that `items` take.
inline int64_t num_blocks_for(int64_t items, int64_t of_block) {
  return (items + of_block - 1) / of_block;
}

/// An array whose elements are read or written together with those of others.
struct FlatArray {
  const void* data;  ///< null: there is none
  int64_t element_bytes;
};

/// The split after whose head all arrays are aligned to min(16, width elements) bytes; all elements are single where
/// their alignments differ.
inline VectorSplit make_vector_split(int64_t count, int width, std::initializer_list<FlatArray> arrays) {
  for (int64_t head = 0; head < width && head < count; ++head) {
    bool aligned = true;
    for (const FlatArray& array : arrays) {
      const int64_t bytes = array.element_bytes * width < 16 ? array.element_bytes * width : 16;
      const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(array.data)) + head * array.element_bytes;
      aligned = aligned && (array.data == nullptr || address % bytes == 0);
    }
    if (aligned) {
      return {count, head, (count - head) / width, width};
    }
  }
  return {count, count, 0, width};
}

}  // namespace vit_hybrid
