// TensorPool: host tensors whose memory is used again once nobody holds them.
#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <vector>

namespace vit_hybrid::data {

/// Batches are large and come one after the other: fresh memory for each costs more page faults than the reading itself
/// where the file is in memory. Any thread.
class TensorPool {
 public:
  /// A contiguous tensor of undefined values. Its memory returns to the pool when the last tensor that shares it is
  /// gone, also after the pool itself.
  at::Tensor take(at::IntArrayRef shape, at::ScalarType type);

 private:
  at::Tensor find_or_make(int64_t bytes);

  std::mutex mutex_;                 // guards buffers_
  std::vector<at::Tensor> buffers_;  // flat bytes; free while nobody else has a reference
};

}  // namespace vit_hybrid::data
