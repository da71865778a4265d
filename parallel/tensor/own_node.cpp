// The autograd node behind record().
#include "parallel/tensor/own_node.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <string>
#include <utility>

#include "parallel/comm/communicator.h"
#include "src/base/error.h"

namespace vit_hybrid::tensor {

namespace {

class OwnNode final : public torch::autograd::Node {
 public:
  OwnNode(const char* name, Backward backward) : name_(name), backward_(std::move(backward)) {}

  std::string name() const override { return name_; }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    VH_ASSERT(backward_ != nullptr, name_ + ": a second backward through one graph");
    if (!gradients[0].defined()) {
      return torch::autograd::variable_list(num_outputs());
    }
    comm::progress();
    const at::NoGradGuard no_grad;
    const at::Tensor gradient = std::move(gradients[0]);
    return backward_(gradient);
  }

  void release_variables() override { backward_ = nullptr; }

 private:
  std::string name_;
  Backward backward_;
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
  comm::progress();  // messages between hosts move only inside calls like this one, once a layer
  if (!records(inputs)) {
    return output;
  }
  std::shared_ptr<OwnNode> node(new OwnNode(name, std::move(backward)), torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  // A handle of its own: `output` may be a tensor that already has a history (an identity, an in-place sum).
  at::Tensor recorded = output.detach();
  torch::autograd::set_history(recorded, node);
  return recorded;
}

}  // namespace vit_hybrid::tensor
