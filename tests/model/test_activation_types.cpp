// Nothing is silently promoted: the graphs of both tasks are walked node by node in bf16 and fp16, forward and
// backward.
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tensor.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "model/losses.h"
#include "model/vit_parameters.h"
#include "src/base/text.h"
#include "tests/support/group_of_one.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using model::VitOptions;
using torch::autograd::Node;

namespace {

constexpr int64_t kTypedSamples = 2;

// All nodes that backward from `output` runs through.
std::vector<Node*> nodes_of(const at::Tensor& output) {
  std::vector<Node*> found;
  std::set<Node*> seen;
  std::vector<Node*> open = {output.grad_fn().get()};
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node).second) {
      continue;
    }
    found.push_back(node);
    for (const auto& edge : node->next_edges()) {
      open.push_back(edge.function.get());
    }
  }
  return found;
}

// The outputs of forward operations that are not of `type`, and the gradients, by the names of their nodes.
std::vector<std::string> promoted_outputs(const at::Tensor& output, at::ScalarType type) {
  std::vector<std::string> promoted;
  for (Node* const node : nodes_of(output)) {
    for (uint32_t i = 0; i < node->num_inputs(); ++i) {
      const auto found = c10::typeMetaToScalarType(node->input_metadata(i).dtype());
      if (found != type) {
        promoted.push_back(str(node->name(), " ", i, " is ", c10::toString(found)));
      }
    }
  }
  return promoted;
}

// Notes gradients as a node returns them, before the engine casts them to the type of what they belong to.
class GradientTypes final : public torch::autograd::FunctionPostHook {
 public:
  GradientTypes(std::string name, at::ScalarType type, std::vector<std::string>& promoted)
      : name_(std::move(name)), type_(type), promoted_(promoted) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients,
                                            const torch::autograd::variable_list& /*above*/) override {
    for (const at::Tensor& gradient : gradients) {
      if (gradient.defined() && gradient.scalar_type() != type_) {
        promoted_.push_back(str(name_, " returned ", c10::toString(gradient.scalar_type())));
      }
    }
    return gradients;
  }

 private:
  std::string name_;
  at::ScalarType type_;
  std::vector<std::string>& promoted_;
};

void watch_gradients(const at::Tensor& output, at::ScalarType type, std::vector<std::string>& promoted) {
  for (Node* const node : nodes_of(output)) {
    node->add_post_hook(std::make_unique<GradientTypes>(node->name(), type, promoted));
  }
}

std::vector<VitOptions> typed_models() {
  std::vector<VitOptions> models;
  for (const auto& plain :
       {small_forecaster(), small_classifier(model::Pooling::kToken), small_classifier(model::Pooling::kMean)}) {
    models.push_back(plain);
    models.push_back(with_dropout(plain, 0.5));
  }
  return models;
}

at::Tensor loss_of(const VitOptions& options, const at::Tensor& output) {
  if (options.task == model::Task::kForecast) {
    const at::Tensor fields =
        normal_tensor({kTypedSamples, options.out_channels, options.image_height, options.image_width}, 3);
    return model::field_loss(model::FieldLoss::kRelativeL2, output, fields.to(at::kFloat), options.output_grid(),
                             kTypedSamples);
  }
  return model::cross_entropy_loss(output, at::tensor({1, 4}, at::kLong), options.label_smoothing, kTypedSamples);
}

// Stages of one unit each, joined by messages as in a pipeline.
struct Chain {
  Chain(const VitOptions& options, at::ScalarType compute, at::ScalarType gradient)
      : buffer(specs_of(options), tensor::make_flat_layout(specs_of(options), 1, 1), compute, gradient, at::kCPU) {
    for (const auto& [name, values] : test_parameters(options)) {
      buffer.parameter(name).value.copy_(values);
    }
    buffer.bump_version();
    for (int64_t unit = 0; unit < options.num_units(); ++unit) {
      stages.push_back(std::make_unique<model::VitStage>(options, Range{unit, unit + 1}, buffer, group_of_one()));
    }
  }

  static std::vector<tensor::ParameterSpec> specs_of(const VitOptions& options) {
    return model::parameter_specs(options, {0, options.num_units()}, 0, 0, 1);
  }

  tensor::ParameterBuffer buffer;
  std::vector<std::unique_ptr<model::VitStage>> stages;
};

}  // namespace

TEST_CASE("activation types: a bias in fp32 is found") {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor x = normal_tensor({2, 3}, 1).to(type).requires_grad_();
    const at::Tensor weight = normal_tensor({4, 3}, 2).to(type);
    CHECK(promoted_outputs(at::linear(x, weight), type).empty());
    const at::Tensor bias = normal_tensor({4}, 3).to(at::kFloat);
    const at::Tensor y = at::linear(x, weight) + bias;
    CHECK_FALSE(promoted_outputs(y, type).empty());
    // Casting back hides it from the next layer, not from the walk.
    CHECK_FALSE(promoted_outputs(y.to(type), type).empty());
  }
}

TEST_CASE("activation types: every operation, message and gradient has the compute type") {
  for (const auto& options : typed_models()) {
    for (const auto type : {at::kBFloat16, at::kHalf}) {
      for (const auto gradient_type : {at::kFloat, type}) {
        CAPTURE(c10::toString(type));
        CAPTURE(options.dropout);
        const Chain chain(options, type, gradient_type);
        const tensor::StepContext context = test_context(kTypedSamples, Mode::kTraining);
        std::vector<std::string> promoted;
        std::vector<at::Tensor> inputs = {test_images(options, kTypedSamples).to(type).requires_grad_()};
        std::vector<at::Tensor> outputs;
        for (const auto& stage : chain.stages) {
          outputs.push_back(stage->forward(inputs.back(), context));
          CHECK((outputs.back().scalar_type() == type));
          CHECK(nodes_of(outputs.back()).size() >= 2);
          CHECK_MESSAGE(promoted_outputs(outputs.back(), type).empty(), join(promoted_outputs(outputs.back(), type)));
          watch_gradients(outputs.back(), type, promoted);
          inputs.push_back(outputs.back().detach().requires_grad_());
        }

        const at::Tensor loss = loss_of(options, inputs.back());
        CHECK((loss.scalar_type() == at::kFloat));
        torch::autograd::backward({loss});
        for (size_t i = outputs.size(); i-- > 0;) {
          const at::Tensor gradient = inputs[i + 1].grad();
          REQUIRE((gradient.scalar_type() == type));
          torch::autograd::backward({outputs[i]}, {gradient});
        }
        CHECK_MESSAGE(promoted.empty(), join(promoted));
        CHECK((chain.buffer.gradients().scalar_type() == gradient_type));
        CHECK(chain.buffer.gradients().abs().max().item<double>() > 0.0);
      }
    }
  }
}
