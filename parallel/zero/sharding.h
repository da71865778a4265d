// ZeroStage: what is split over the data axis, and which elements of a bucket a rank owns under it.
#pragma once

#include "parallel/tensor/parameter_buffer.h"
#include "src/base/partition.h"

namespace vit_hybrid::zero {

/// What the ranks of the data axis split among them: S. Rajbhandari et al., "ZeRO: memory optimizations toward training
/// trillion parameter models", SC20, section 5. Stage 0 is the plain replicated optimizer.
enum class ZeroStage : int { kReplicated = 0, kOptimizerState = 1 };

/// Parts that the flat layout of a run must have: the size of the data axis, or 1 for the replicated optimizer.
int num_shards(ZeroStage stage, int data_size);

/// The elements of bucket `bucket` that data rank `data_rank` updates: its shard, or the whole bucket.
Range owned_range(const tensor::FlatLayout& layout, int bucket, ZeroStage stage, int data_rank);

}  // namespace vit_hybrid::zero
