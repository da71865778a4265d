// The way of a prediction back to the first stage, and the next input that it is part of.
#include "src/infer/rollout.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/empty.h>

#include "parallel/comm/communicator.h"
#include "src/base/memory_tracker.h"

namespace vit_hybrid::train {

Rollout::Rollout(ModelRunner& model, mesh::DeviceMesh& mesh, const model::VitOptions& options,
                 const data::SampleChannels& channels, const data::IncrementTarget& increments)
    : model_(model), mesh_(mesh), options_(options), channels_(channels) {
  const at::Tensor& values = model_.parameters().values();
  // What predict() gives: fp32 for parameters of half the length. Between leads it is kept.
  tensors_ = values.options().dtype(at::toOpMathType(values.scalar_type()));
  increments_ = increments.to(values.device(), tensors_.dtype().toScalarType());
}

void Rollout::begin(int64_t count, const at::Tensor& inputs) {
  const MemoryScope scope(MemoryClass::kData);
  count_ = count;
  if (model_.is_first_stage()) {
    input_ = shared(channels_.inputs(), inputs);
  }
}

at::Tensor Rollout::advance() {
  at::Tensor prediction = model_.predict(input_, count_);
  comm::Communicator& pipeline = mesh_.pipeline();
  const int last = pipeline.size() - 1;
  const MemoryScope scope(MemoryClass::kData);
  if (last > 0 && model_.is_last_stage()) {
    pipeline.exchange({{comm::Transfer::Direction::kSend, prediction.contiguous(), 0}}).wait();
  }
  if (!model_.is_first_stage()) {
    return {};
  }
  if (last > 0) {
    prediction = at::empty({count_, channels_.outputs(), options_.image_height, options_.image_width}, tensors_);
    pipeline.exchange({{comm::Transfer::Direction::kReceive, prediction, last}}).wait();
  }
  const at::Tensor state = increments_ ? increments_.state(prediction, part(channels_.state())) : prediction;
  take(state);
  return has_states() ? state.to(at::kCPU, state.scalar_type(), /*non_blocking=*/false, /*copy=*/true) : at::Tensor();
}

void Rollout::force(const at::Tensor& forcings) {
  if (model_.is_first_stage()) {
    const MemoryScope scope(MemoryClass::kData);
    const int64_t end = channels_.states().end;
    const at::Tensor values = shared(channels_.forcings + channels_.computed, forcings);
    part({0, channels_.forcings}).copy_(values.narrow(1, 0, channels_.forcings));
    part({end, end + channels_.computed}).copy_(values.narrow(1, channels_.forcings, channels_.computed));
  }
}

// On the first stage what the rank with the states has.
at::Tensor Rollout::shared(int64_t channels, const at::Tensor& values) {
  at::Tensor there = at::empty({count_, channels, options_.image_height, options_.image_width}, tensors_);
  if (has_states()) {
    there.copy_(values);
  }
  mesh_.tensor().broadcast(there, 0).wait();
  return there;
}

// Into the next input.
void Rollout::take(const at::Tensor& state) {
  const Range states = channels_.states();
  const int64_t kept = states.size() - channels_.prognostic;
  if (kept > 0) {
    part({states.end - kept, states.end}).copy_(part({states.begin, states.begin + kept}).clone());
  }
  part(channels_.state()).copy_(state.narrow(1, 0, channels_.prognostic));
}

}  // namespace vit_hybrid::train
