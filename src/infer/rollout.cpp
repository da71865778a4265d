// Rollout: out of the last stage, into the first.
#include "src/infer/rollout.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/empty.h>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"

namespace vit_hybrid::train {

Rollout::Rollout(ModelRunner& model, mesh::DeviceMesh& mesh, const std::vector<int64_t>& shape, const at::Tensor& start)
    : model_(model), mesh_(mesh) {
  VH_ASSERT(mesh.data().size() == 1, "a forecast is one trajectory");
  if (!model_.is_first_stage()) {
    return;
  }
  const MemoryScope scope(MemoryClass::kData);
  // What predict() gives: fp32 for parameters of half the length.
  const at::Tensor& values = model_.parameters().values();
  const at::ScalarType type = at::toOpMathType(values.scalar_type());
  state_ = at::empty({1, shape[0], shape[1], shape[2]}, values.options().dtype(type));
  if (mesh_.tensor().rank() == 0) {
    state_.copy_(start.unsqueeze(0));
  }
  mesh_.tensor().broadcast(state_, 0).wait();
}

at::Tensor Rollout::advance() {
  at::Tensor prediction = model_.predict(state_, 1);
  comm::Communicator& pipeline = mesh_.pipeline();
  const int last = pipeline.size() - 1;
  if (last == 0) {
    state_ = prediction;
  } else if (model_.is_last_stage()) {
    prediction = prediction.contiguous();
    pipeline.exchange({{comm::Transfer::Direction::kSend, prediction, 0}}).wait();
  } else if (model_.is_first_stage()) {
    pipeline.exchange({{comm::Transfer::Direction::kReceive, state_, last}}).wait();
  }
  const MemoryScope scope(MemoryClass::kData);
  return mesh_.rank() == 0 ? state_[0].to(at::kCPU, at::kFloat, /*non_blocking=*/false, /*copy=*/true) : at::Tensor();
}

}  // namespace vit_hybrid::train
