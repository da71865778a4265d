// Recompute changes no bit: outputs, gradients, and what the sink is told, with dropout everywhere, in every type.
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <ATen/ops/equal.h>

#include <array>
#include <map>
#include <utility>

#include "model/recompute.h"
#include "src/base/memory_tracker.h"
#include "tests/support/group_of_one.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using model::Recompute;
using model::VitOptions;

namespace {

constexpr int64_t kRecomputedSamples = 3;
constexpr std::array kRecomputing = {Recompute::kSelective, Recompute::kFull};

// Large enough for the kernels that have a least size.
VitOptions larger_forecaster() {
  VitOptions options = small_forecaster();
  options.image_height = 64;
  options.image_width = 64;
  options.embed_dim = 128;
  options.mlp_hidden = 512;
  return options;
}

std::vector<VitOptions> recomputed_models() {
  return {small_forecaster(), with_dropout(with_tanh(small_forecaster()), 0.3),
          with_dropout(small_classifier(model::Pooling::kToken), 0.3), with_dropout(larger_forecaster(), 0.3)};
}

// How often each parameter's gradient was ready, by micro-batch.
class MicroBatchSink : public tensor::GradientSink {
 public:
  void ready(int parameter, int micro_batch) override { ++counts[{parameter, micro_batch}]; }
  std::map<std::pair<int, int>, int> counts;
};

struct RecomputeResult {
  std::vector<at::Tensor> outputs;
  NamedTensors gradients;
  std::map<std::pair<int, int>, int> ready;
};

// Two micro-batches with other samples, both forwards before the first backward, as a pipeline has them.
RecomputeResult run_twice(const VitOptions& options, at::ScalarType type, Recompute recompute) {
  const Range units{0, options.num_units()};
  TestStage holder(options, units, test_parameters(options), type, group_of_one());
  model::VitStage stage(options, units, holder.buffer, group_of_one(), recompute);
  MicroBatchSink sink;
  std::vector<tensor::StepContext> contexts(2, test_context(kRecomputedSamples, Mode::kTraining));
  RecomputeResult result;
  std::vector<at::Tensor> recorded;
  for (int i = 0; i < 2; ++i) {
    tensor::StepContext& context = contexts[static_cast<size_t>(i)];
    context.micro_batch = i;
    context.sink = &sink;
    context.samples[0] += i;
    const at::Tensor images = test_images(options, kRecomputedSamples).mul(1.0 + i).to(type).requires_grad_();
    recorded.push_back(stage.forward(images, context));
    result.outputs.push_back(recorded.back().detach().clone());
  }
  for (const at::Tensor& output : recorded) {
    torch::autograd::backward({output}, {normal_tensor(output.sizes(), 12).to(type)});
  }
  result.gradients = holder.gradients(group_of_one());
  result.ready = sink.counts;
  return result;
}

void check_equal(const RecomputeResult& result, const RecomputeResult& reference) {
  for (size_t i = 0; i < reference.outputs.size(); ++i) {
    CHECK(at::equal(result.outputs[i], reference.outputs[i]));
  }
  REQUIRE(result.gradients.size() == reference.gradients.size());
  for (const auto& [name, gradient] : reference.gradients) {
    CAPTURE(name);
    CHECK(at::equal(result.gradients.at(name), gradient));
  }
  CHECK(result.ready == reference.ready);
}

}  // namespace

TEST_CASE("recompute: outputs, gradients and ready counts are those without it, bit for bit") {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const auto& options : recomputed_models()) {
      const RecomputeResult reference = run_twice(options, type, Recompute::kNone);
      for (const auto& [key, count] : reference.ready) {
        CHECK(count == 1);
      }
      for (const Recompute recompute : kRecomputing) {
        CAPTURE(std::string(at::toString(type)));
        CAPTURE(options.dropout);
        CAPTURE(static_cast<int>(recompute));
        check_equal(run_twice(options, type, recompute), reference);
      }
    }
  }
}

TEST_CASE("recompute: in evaluation and without grad mode nothing is kept or given back") {
  const VitOptions options = small_forecaster();
  const Range units{0, options.num_units()};
  TestStage holder(options, units, test_parameters(options), at::kFloat, group_of_one());
  const at::Tensor images = test_images(options, kRecomputedSamples).to(at::kFloat);
  const auto context = test_context(kRecomputedSamples, Mode::kEvaluation);
  const at::Tensor reference = holder.stage.forward(images, context);
  for (const Recompute recompute : kRecomputing) {
    model::VitStage stage(options, units, holder.buffer, group_of_one(), recompute);
    const at::Tensor output = stage.forward(images, context);
    CHECK(at::equal(output, reference));
    CHECK_FALSE(output.requires_grad());
  }
}

TEST_CASE("recompute: a value is gone between forward and backward, and there for the node that keeps it") {
  const MemoryTracker::Attachment attachment;
  const MemoryScope scope(MemoryClass::kActivations);
  const auto bytes = [] { return MemoryTracker::report().current[static_cast<size_t>(MemoryClass::kActivations)]; };
  const at::Tensor x = normal_tensor({1 << 12}, 3).requires_grad_();
  int computed = 0;
  const auto compute = [&computed, x] {
    ++computed;
    return x.mul(2.0);
  };
  const at::Tensor value = x.mul(2.0);
  const int64_t before = bytes();
  const at::Tensor square = model::recompute_in_backward(value, value.pow(2.0), compute);
  // The square came, the value went.
  CHECK(bytes() == before);
  CHECK(value.storage().data() == nullptr);
  torch::autograd::backward({square.sum()});
  CHECK(computed == 1);
  CHECK(at::equal(x.grad(), x.detach().mul(8.0)));
}
