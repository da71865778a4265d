// Ownership under each stage of ZeRO.
#include "parallel/zero/sharding.h"

namespace vit_hybrid::zero {

int num_shards(ZeroStage stage, int data_size) {
  return stage == ZeroStage::kReplicated ? 1 : data_size;
}

Range owned_range(const tensor::FlatLayout& layout, int bucket, ZeroStage stage, int data_rank) {
  return layout.shard_of(bucket, stage == ZeroStage::kReplicated ? 0 : data_rank);
}

}  // namespace vit_hybrid::zero
