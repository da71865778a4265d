// Mappings by mmap(), c10's reports of host memory, and mallopt().
#include "src/base/host_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>  // defines __GLIBC__ where it is glibc
#include <limits>

#include "src/base/memory_tracker.h"
#include "src/base/shareable_tensor.h"

namespace vit_hybrid {

namespace {

size_t in_pages(size_t bytes) {
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

void* map(size_t size) {
  void* const block = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return block == MAP_FAILED ? nullptr : block;
}

}  // namespace

BlockPool::~BlockPool() {
  give_back_above(0);
}

void* BlockPool::take(size_t bytes) {
  const size_t size = in_pages(bytes);
  const std::lock_guard lock(mutex_);
  void* block = reuse(size);
  if (block == nullptr) {
    const size_t most = std::max(figures_.most_used, figures_.used + size);
    const size_t room = most + std::max(most / 32, std::min(most / 8, kSmall)) - figures_.used - size;
    give_back_above(room);
    block = map(size);
    if (block == nullptr && figures_.kept > 0) {
      give_back_above(0);
      block = map(size);
    }
    if (block == nullptr) {
      return nullptr;
    }
    ++figures_.mapped;
  }
  used_[block] = size;
  figures_.used += size;
  figures_.most_used = std::max(figures_.most_used, figures_.used);
  figures_.most_held = std::max(figures_.most_held, figures_.used + figures_.kept);
  return block;
}

void BlockPool::give(void* block) {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(block);
  TORCH_INTERNAL_ASSERT(found != used_.end(), "not a block of this pool");
  kept_[found->second].push_back({block, num_freed_++});
  figures_.used -= found->second;
  figures_.kept += found->second;
  used_.erase(found);
}

BlockPool::Figures BlockPool::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

void* BlockPool::reuse(size_t size) {
  const auto found = kept_.find(size);
  if (found == kept_.end()) {
    return nullptr;
  }
  void* const block = found->second.back().block;
  found->second.pop_back();
  if (found->second.empty()) {
    kept_.erase(found);
  }
  figures_.kept -= size;
  return block;
}

void BlockPool::give_back_above(size_t size) {
  while (figures_.kept > size) {
    const auto oldest = std::min_element(kept_.begin(), kept_.end(), [](const auto& a, const auto& b) {
      return a.second.front().freed < b.second.front().freed;
    });
    munmap(oldest->second.front().block, oldest->first);
    figures_.kept -= oldest->first;
    oldest->second.pop_front();
    if (oldest->second.empty()) {
      kept_.erase(oldest);
    }
  }
}

namespace {

int64_t g_held_before = 0;  // by tensors of another allocator

BlockPool& pool() {
  static auto* const instance = new BlockPool;  // never destroyed: tensors with static storage are freed after it
  return *instance;
}

void release(void* block) {
  c10::profiledCPUMemoryReporter().Delete(block);
  pool().give(block);
}

class HostAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes < kLeastPooled) {
      return c10::GetDefaultCPUAllocator()->allocate(bytes);
    }
    void* const block = pool().take(bytes);
    if (block == nullptr) {
      c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, false, "the host cannot allocate memory: ", bytes, " bytes were asked for");
    }
    c10::profiledCPUMemoryReporter().New(block, bytes);
    return {block, block, &release, c10::Device(c10::DeviceType::CPU)};
  }

  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

}  // namespace

c10::Allocator& host_allocator() {
  static auto* const instance = new HostAllocator;
  return *instance;
}

int64_t host_allocator_peak() {
  return g_held_before + static_cast<int64_t>(pool().figures().most_held) + shareable_bytes_peak();
}

void keep_freed_memory() {
#if defined(__GLIBC__)
  constexpr int kLargestFromHeap = 1 << 30;  // larger blocks get a mapping of their own
  constexpr int kGrowth = 64 << 20;
  mallopt(M_MMAP_THRESHOLD, kLargestFromHeap);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, kGrowth);
#endif
}

void pool_host_tensors() {
#if !defined(__SANITIZE_ADDRESS__)
  g_held_before = MemoryTracker::report().total_current;
  c10::SetCPUAllocator(&host_allocator());
#endif
}

}  // namespace vit_hybrid
