// BlockPool and the allocator of host tensors that is made of it: a process that holds little more than its tensors at
// their peak, and does not fault freed memory in again.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>

namespace vit_hybrid {

/// Blocks of whole pages, each a mapping of its own. A freed block is kept for the next one of its size, last in first
/// out, since steps repeat their sizes; the blocks that were freed first are given back to the system where all would
/// otherwise take more than what was in use at most and an 8th of that up to kSmall, or a 32nd. All functions may be
/// called in any thread.
class BlockPool {
 public:
  BlockPool() = default;
  ~BlockPool();  ///< of the kept blocks
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// With a 32nd alone the steps of small models fault in a third of their tensors each time.
  static constexpr size_t kSmall = 16 << 20;

  /// At least `bytes`, aligned to a page, of any content; nullptr where the system has none, with nothing kept.
  void* take(size_t bytes);
  void give(void* block);

  struct Figures {
    size_t used = 0;       ///< bytes in blocks that were taken
    size_t most_used = 0;  ///< at a time
    size_t kept = 0;       ///< bytes in freed blocks
    size_t most_held = 0;  ///< used and kept, at a time
    int64_t mapped = 0;    ///< mappings that were made
  };
  Figures figures() const;

 private:
  struct Kept {
    void* block;
    int64_t freed;  // the how manieth
  };

  void* reuse(size_t size);
  void give_back_above(size_t size);

  mutable std::mutex mutex_;
  Figures figures_;
  int64_t num_freed_ = 0;
  std::unordered_map<void*, size_t> used_;
  std::map<size_t, std::deque<Kept>> kept_;  // by size, first freed first; none empty
};

/// ATen's allocator of host memory, with a BlockPool for blocks of kLeastPooled bytes and more. Smaller ones are of
/// LibTorch's own.
c10::Allocator& host_allocator();
inline constexpr size_t kLeastPooled = 64 << 10;
/// The most bytes that its BlockPool held at a time, those of freed blocks too, with those of shareable_zeros() and
/// what MemoryTracker counted when pool_host_tensors() was called.
int64_t host_allocator_peak();

/// Keeps freed memory in the process's heap: pages that are given back and faulted in again cost 6 to 8 % of a training
/// step on a CPU. To be called first in main(); does nothing outside of glibc.
void keep_freed_memory();

/// Makes host_allocator() that of all host tensors from now on: for trainings, whose steps repeat their sizes and whose
/// memory is planned. What measures kernels, or uses a model, holds little at a time in many sizes and stays with the
/// heap, whose pages serve all of them. Builds with AddressSanitizer keep its allocators, which know of each block.
void pool_host_tensors();

}  // namespace vit_hybrid
