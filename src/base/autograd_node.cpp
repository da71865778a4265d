// The autograd node behind record() and record_jointly().
#include "src/base/autograd_node.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <string>
#include <utility>

#include "src/base/error.h"

namespace vit_hybrid {

namespace {

class RecordedNode final : public torch::autograd::Node {
 public:
  RecordedNode(const char* name, JointBackward backward) : name_(name), backward_(std::move(backward)) {}

  std::string name() const override { return name_; }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    VH_ASSERT(backward_ != nullptr, name_ + ": a second backward through one graph");
    const auto defined = [](const at::Tensor& gradient) { return gradient.defined(); };
    if (std::none_of(gradients.begin(), gradients.end(), defined)) {
      return torch::autograd::variable_list(num_outputs());
    }
    do_background_work();
    const at::NoGradGuard no_grad;
    const torch::autograd::variable_list moved = std::move(gradients);
    return backward_(moved);
  }

  void release_variables() override { backward_ = nullptr; }

 private:
  std::string name_;
  JointBackward backward_;
};

}  // namespace

bool records(const std::vector<at::Tensor>& inputs) {
  if (!at::GradMode::is_enabled()) {
    return false;
  }
  for (const auto& input : inputs) {
    if (input.requires_grad()) {
      return true;
    }
  }
  return false;
}

at::Tensor record(const char* name, const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                  Backward backward) {
  return record_jointly(name, {output}, inputs,
                        [backward = std::move(backward)](const auto& gradients) { return backward(gradients[0]); })[0];
}

std::vector<at::Tensor> record_jointly(const char* name, const std::vector<at::Tensor>& outputs,
                                       const std::vector<at::Tensor>& inputs, JointBackward backward) {
  do_background_work();
  if (!records(inputs)) {
    return outputs;
  }
  std::shared_ptr<RecordedNode> node(new RecordedNode(name, std::move(backward)), torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  std::vector<at::Tensor> recorded;
  for (const at::Tensor& output : outputs) {
    // A handle of its own: `output` may be a tensor that already has a history (an identity, an in-place sum).
    recorded.push_back(output.detach());
    torch::autograd::set_history(recorded.back(), node);
  }
  return recorded;
}

at::Tensor backward_between(const torch::autograd::Edge& output, at::Tensor gradient,
                            const torch::autograd::Edge& input) {
  return torch::autograd::Engine::get_default_engine()
      .execute({output}, {std::move(gradient)}, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/false,
               {input})
      .at(0);
}

}  // namespace vit_hybrid
