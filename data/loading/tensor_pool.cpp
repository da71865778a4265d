// Buffers shared with the tensors that were handed out, which tells whether they are free.
#include "data/loading/tensor_pool.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

#include "data/reading/box_runs.h"

namespace vit_hybrid::data {

namespace {

constexpr int64_t kMostFree = 8;  // buffers that fit nothing at the moment, such as those of a smaller last batch

// Fewer page faults when it is filled first, and fewer misses of translations after. Where the system has no large
// pages, or gives none, it stays as it is.
void ask_for_large_pages(const at::Tensor& buffer) {
#if defined(MADV_HUGEPAGE)
  constexpr uintptr_t kLargePage = uintptr_t{1} << 21;
  const auto address = reinterpret_cast<uintptr_t>(buffer.data_ptr());
  const uintptr_t begin = (address + kLargePage - 1) & ~(kLargePage - 1),
                  end = (address + buffer.nbytes()) & ~(kLargePage - 1);
  if (begin < end) {
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  }
#endif
}

}  // namespace

at::Tensor host_tensor(at::IntArrayRef shape, at::ScalarType type, HostMemory memory) {
  return at::empty(shape, at::TensorOptions(type).pinned_memory(memory == HostMemory::kPinned));
}

// This pool knows who holds a buffer, but not which copies to a device still read from it: one that is started without
// waiting outlives the batch on the host. Buffers of page-locked memory are therefore left to LibTorch's allocator: a
// copy tells it its stream, and when the tensor is gone it waits for an event on that stream before it gives the memory
// to anybody else.
at::Tensor TensorPool::take(at::IntArrayRef shape, at::ScalarType type, HostMemory memory) {
  if (memory == HostMemory::kPinned) {
    return host_tensor(shape, type, memory);
  }
  const int64_t bytes = num_elements(shape) * static_cast<int64_t>(c10::elementSize(type));
  const at::Tensor buffer = find_or_make(bytes);
  // The deleter owns a reference to the buffer, and does nothing but give it up.
  return at::from_blob(
      buffer.data_ptr(), shape, [buffer](void*) {}, at::TensorOptions(type));
}

at::Tensor TensorPool::find_or_make(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto is_free = [](const at::Tensor& buffer) { return buffer.use_count() == 1; };
  const auto fits = [&](const at::Tensor& buffer) {
    return is_free(buffer) && buffer.numel() >= bytes && buffer.numel() / 2 <= bytes;
  };
  // The smallest one: whoever wants a little more would need a new one if the larger one were taken.
  const at::Tensor* smallest = nullptr;
  for (const at::Tensor& buffer : buffers_) {
    if (fits(buffer) && (smallest == nullptr || buffer.numel() < smallest->numel())) {
      smallest = &buffer;
    }
  }
  if (smallest != nullptr) {
    return *smallest;
  }
  if (std::count_if(buffers_.begin(), buffers_.end(), is_free) >= kMostFree) {
    std::erase_if(buffers_, is_free);
  }
  buffers_.push_back(at::empty({bytes}, at::kByte));
  ask_for_large_pages(buffers_.back());
  return buffers_.back();
}

}  // namespace vit_hybrid::data
