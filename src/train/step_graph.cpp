// StepGraph: what stands at fixed addresses, and what the host does at each replay.
#include "src/train/step_graph.h"

#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>
#include <vector>

#include "src/base/autograd_node.h"
#include "src/base/memory_tracker.h"

namespace vit_hybrid::train {

namespace {

// Notes which gradients a backward adds to, in its order: a replay does not call back.
class NotingSink final : public tensor::GradientSink {
 public:
  void clear() { parameters_.clear(); }
  void ready(int parameter, int /*micro_batch*/) override { parameters_.push_back(parameter); }
  void tell(const tensor::StepContext& context) const {
    for (const int parameter : parameters_) {
      context.ready(parameter);
    }
  }

 private:
  std::vector<int> parameters_;
};

// A tensor with the same values, whose memory stays where it is.
at::Tensor own_copy(const at::Tensor& tensor) {
  const MemoryScope scope(MemoryClass::kData);
  return tensor.detach().clone(at::MemoryFormat::Contiguous);
}

}  // namespace

class StepGraph::Recorded {
 public:
  Recorded(DeviceRecorder& recorder, const at::Tensor& input, const at::Tensor& target,
           const tensor::StepContext& context, const Forward& forward)
      : input_(own_copy(input).set_requires_grad(true)), target_(own_copy(target)), context_(context) {
    context_.sink = &sink_;
    recorder.make_room();
    forward_ = recorder.record([this, &forward] { loss_ = forward(input_, target_, context_); });
    if (forward_ == nullptr) {
      return;
    }
    loss_gradient_ = at::zeros_like(loss_.detach());
    backward_ = recorder.record([this] {
      sink_.clear();
      backward_between(torch::autograd::impl::gradient_edge(loss_), loss_gradient_,
                       torch::autograd::impl::gradient_edge(input_));
    });
  }

  bool is_whole() const { return backward_ != nullptr; }

  // The loss is copied because the next replay writes over it.
  at::Tensor replay(const at::Tensor& input, const at::Tensor& target, const tensor::StepContext& context) {
    const at::Tensor loss = without_grad([&] {
      input_.copy_(input);
      target_.copy_(target);
      forward_->replay();
      return loss_.detach().clone();
    });
    return record("StepGraph", loss, {input}, [this, &context](const at::Tensor& gradient) {
      loss_gradient_.copy_(gradient);
      backward_->replay();
      sink_.tell(context);
      return std::vector<at::Tensor>{at::Tensor()};
    });
  }

 private:
  at::Tensor input_;
  at::Tensor target_;
  tensor::StepContext context_;
  NotingSink sink_;
  at::Tensor loss_;
  at::Tensor loss_gradient_;
  std::unique_ptr<DeviceGraph> forward_;
  std::unique_ptr<DeviceGraph> backward_;
};

StepGraph::StepGraph(std::shared_ptr<DeviceRecorder> recorder) : recorder_(std::move(recorder)) {}

StepGraph::~StepGraph() = default;

at::Tensor StepGraph::run(const MicroBatchKind& kind, const at::Tensor& input, const at::Tensor& target,
                          const tensor::StepContext& context, const Forward& forward) {
  if (recorder_ == nullptr) {
    return forward(input, target, context);
  }
  const auto [found, is_first] = kinds_.try_emplace(kind);
  if (is_first) {
    // What it keeps for backward lies in ordinary memory. What the other kinds have reserved would be held beside it,
    // so it is given up: they are recorded again, and from then on all of them share theirs.
    for (auto& [other, recorded] : kinds_) {
      recorded = nullptr;
    }
    return forward(input, target, context);
  }
  if (found->second == nullptr) {
    found->second = std::make_unique<Recorded>(*recorder_, input, target, context, forward);
    if (!found->second->is_whole()) {
      kinds_.clear();
      recorder_->make_room();
      recorder_ = nullptr;
      return forward(input, target, context);
    }
  }
  return found->second->replay(input, target, context);
}

}  // namespace vit_hybrid::train
