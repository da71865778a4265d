// AttentionWorkspace: the arrays of one thread, cut from one piece of memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vit_hybrid::kernels {

/// Hands out arrays one behind the other. Over no memory (null) it counts the bytes that would be needed.
class AttentionWorkspace {
 public:
  explicit AttentionWorkspace(std::byte* memory) : memory_(memory) {}

  /// `count` elements, uninitialized, on a border of 64 bytes if the memory is.
  template <class T>
  T* take(int64_t count) {
    T* const array = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + used_);
    used_ += (count * static_cast<int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    return array;
  }
  int64_t used() const { return used_; }

 private:
  static constexpr int64_t kAlignment = 64;

  std::byte* memory_;
  int64_t used_ = 0;
};

}  // namespace vit_hybrid::kernels
