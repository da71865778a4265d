// Ownership under each stage of ZeRO, and the tensors of what is owned.
#include "parallel/zero/sharding.h"

#include "parallel/zero/rules/table_tensor.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::zero {

int num_shards(ZeroStage stage, int data_size) {
  return stage == ZeroStage::kReplicated ? 1 : data_size;
}

Range owned_range(const tensor::FlatLayout& layout, int bucket, ZeroStage stage, int data_rank) {
  return layout.shard_of(bucket, stage == ZeroStage::kReplicated ? 0 : data_rank);
}

at::Tensor segment_tensor(const std::vector<Segment>& segments, at::Device device) {
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    const bool ascends = i == 0 ? segment.begin == 0 : segment.begin > segments[i - 1].begin;
    VH_ASSERT(ascends && segment.begin % kSegmentAlignment == 0 && segment.shift % kSegmentAlignment == 0,
              str("segment ", i, " begins at ", segment.begin, ", shifted by ", segment.shift));
  }
  return table_tensor(segments, device);
}

}  // namespace vit_hybrid::zero
