// Which part of the flat buffers a rank owns, and the tensors of it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

#include "parallel/tensor/parameter_buffer.h"
#include "parallel/zero/rules/table_cursor.h"
#include "src/base/partition.h"

namespace vit_hybrid::zero {

/// What the ranks of the data axis split among them: S. Rajbhandari et al., "ZeRO: memory optimizations toward training
/// trillion parameter models", SC20, section 5. Stage 0 is the plain replicated optimizer.
enum class ZeroStage : int { kReplicated = 0, kOptimizerState = 1 };

/// Parts that the flat layout of a run must have: the size of the data axis, or 1 for the replicated optimizer.
int num_shards(ZeroStage stage, int data_size);

/// The elements of bucket `bucket` that data rank `data_rank` updates: its shard, or the whole bucket.
Range owned_range(const tensor::FlatLayout& layout, int bucket, ZeroStage stage, int data_rank);

/// Flat tensors on one device: master weights and state of the owned elements alone, the flat buffers whole; which
/// element belongs to which, and their weight decays, say the segments.
struct OwnedTensors {
  at::Tensor master;              ///< undefined where the parameters are the master weights
  std::vector<at::Tensor> state;  ///< in the order of UpdateRule::state_names()
  at::Tensor parameters;
  at::Tensor gradients;
  at::Tensor segments;  ///< segment_tensor()
};

/// table_tensor() of the segments. Asserts that they ascend from 0 and are aligned.
at::Tensor segment_tensor(const std::vector<Segment>& segments, at::Device device);

}  // namespace vit_hybrid::zero
