// StateSnapshot: boxes one after the other in one block of memory.
#include "src/train/saving/state_snapshot.h"

#include "data/loading/tensor_pool.h"
#include "src/base/memory_tracker.h"

namespace vit_hybrid::train {

StateSnapshot::StateSnapshot(Engine& engine, const mesh::DeviceMesh& mesh) : state_(written_boxes(engine, mesh)) {
  int64_t elements = 0;
  for (const StateBox& box : state_) {
    elements += box.values.numel();
  }
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const at::Tensor& like = engine.parameters().values();
  const auto kind = like.is_cuda() ? data::HostMemory::kPinned : data::HostMemory::kPageable;
  const at::Tensor memory = data::host_tensor({elements}, engine.optimizer().master_type(), kind).zero_();
  copies_ = state_;
  int64_t at = 0;
  for (StateBox& copy : copies_) {
    const int64_t count = copy.values.numel();
    copy.values = memory.narrow(0, at, count).view(copy.values.sizes());
    at += count;
  }
}

void StateSnapshot::take() {
  for (size_t i = 0; i < state_.size(); ++i) {
    copies_[i].values.copy_(state_[i].values);
  }
}

}  // namespace vit_hybrid::train
