// TensorPool: host tensors whose memory is used again once nobody holds them.
#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <vector>

namespace vit_hybrid::data {

/// Kinds of host memory. kPinned is page-locked: a GPU copies from it while the host goes on.
enum class HostMemory { kPageable, kPinned };

/// A contiguous tensor of undefined values. kPinned needs a GPU that this program can use (else c10::Error), and its
/// memory comes from LibTorch's caching host allocator, which hands it out again only when nobody holds it and the
/// copies to a device that were started from it are over.
at::Tensor host_tensor(at::IntArrayRef shape, at::ScalarType type, HostMemory memory);

/// Batches are large and come one after the other: fresh memory for each costs more page faults than the reading itself
/// where the file is in memory. Any thread.
class TensorPool {
 public:
  /// A contiguous tensor of undefined values. Its memory returns to the pool when the last tensor that shares it is
  /// gone, also after the pool itself. kPinned: as host_tensor(), whose allocator is the pool of such memory.
  at::Tensor take(at::IntArrayRef shape, at::ScalarType type, HostMemory memory = HostMemory::kPageable);

 private:
  at::Tensor find_or_make(int64_t bytes);

  std::mutex mutex_;                 // guards buffers_
  std::vector<at::Tensor> buffers_;  // flat bytes; free while nobody else has a reference
};

}  // namespace vit_hybrid::data
