// Sharding: ownership under each stage of ZeRO, and the tensors of what is owned.
#include "parallel/zero/sharding.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::zero {

void StateGroups::share(const at::Tensor& tensor) const {
  for (comm::Communicator* const group : {shard, replica}) {
    if (group != nullptr) group->share(tensor);
  }
}

StateGroups state_groups(comm::Communicator& data, ZeroStage stage) {
  return stage == ZeroStage::kReplicated ? StateGroups{nullptr, &data} : StateGroups{&data, nullptr};
}

StateGroups state_groups(mesh::DeviceMesh& mesh, ZeroStage stage) {
  if (stage == ZeroStage::kReplicated || !mesh.dims().cuts_data()) {
    return state_groups(mesh.data(), stage);
  }
  return {&mesh.group(mesh::Group::kShard), &mesh.group(mesh::Group::kReplica)};
}

at::Tensor byte_tensor(const void* bytes, int64_t rows, int64_t width, at::Device device) {
  const at::Tensor host = at::empty({rows, width}, at::kByte);
  std::copy_n(static_cast<const uint8_t*>(bytes), host.numel(), host.mutable_data_ptr<uint8_t>());
  return host.to(device);
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
