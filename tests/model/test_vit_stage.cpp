// The model of one process against the reference built from torch::nn modules, and against finite differences.
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "model/layer_norm.h"
#include "model/vit_parameters.h"
#include "src/base/memory_tracker.h"
#include "tests/support/compare.h"
#include "tests/support/group_of_one.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using model::VitOptions;

namespace {

constexpr int64_t kStageSamples = 3;

// Rounding of a few hundred additions in a row, twice through two blocks; measured errors are near 1e-15.
constexpr double kStageBound = 1e-13;

std::vector<VitOptions> stage_models() {
  return {small_forecaster(),
          with_tanh(small_forecaster()),
          with_cut_patches(small_forecaster()),
          with_cut_patches(small_classifier(model::Pooling::kToken)),
          small_classifier(model::Pooling::kToken),
          small_classifier(model::Pooling::kMean)};
}

struct Case {
  explicit Case(const VitOptions& chosen)
      : options(chosen),
        parameters(test_parameters(chosen)),
        images(test_images(chosen, kStageSamples)),
        output_gradient(normal_tensor(output_shape(chosen, kStageSamples), 12)),
        context(test_context(kStageSamples, Mode::kTraining)) {}

  Outcome ours(at::ScalarType type) const {
    return run_ours(options, parameters, images, output_gradient, context, type, group_of_one());
  }
  Outcome reference(at::ScalarType type) const {
    return run_reference(options, parameters, images, output_gradient, context, type);
  }

  VitOptions options;
  NamedTensors parameters;
  at::Tensor images;
  at::Tensor output_gradient;
  tensor::StepContext context;
};

struct BucketArrival {
  int bucket;
  uint64_t num_nodes;  // that autograd had made by then: how far forward was
};

// The values of a bucket, which come when they are waited for; until then there is nothing to compute with.
class LateBucket final : public comm::Work::State {
 public:
  LateBucket(at::Tensor values, int bucket, std::vector<BucketArrival>& arrivals)
      : values_(std::move(values)), right_(values_.clone()), bucket_(bucket), arrivals_(arrivals) {
    values_.fill_(std::numeric_limits<double>::quiet_NaN());
  }
  void wait() override {
    values_.copy_(right_);
    arrivals_.push_back({bucket_, at::sequence_number::peek()});
  }
  bool test() override { return false; }

 private:
  at::Tensor values_;
  at::Tensor right_;
  int bucket_;
  std::vector<BucketArrival>& arrivals_;
};

}  // namespace

TEST_CASE("vit_stage: outputs and every gradient are the reference's in fp64") {
  for (const auto& options : stage_models()) {
    const Case given(options);
    const Outcome ours = given.ours(at::kDouble);
    const Outcome reference = given.reference(at::kDouble);
    CHECK(relative_error(ours.output, reference.output) <= kStageBound);
    const WorstError worst = worst_gradient_error(ours.gradients, reference.gradients);
    CAPTURE(worst.name);
    CHECK(worst.error <= kStageBound);
  }
}

// Both networks round in different places; ours may be as far from the fp64 reference as the fp32 reference is, up to a
// factor for another order of the same sums.
TEST_CASE("vit_stage: fp32 is as near to fp64 as the reference's fp32") {
  constexpr double kFactor = 4.0;
  for (const auto& options : stage_models()) {
    const Case given(options);
    const Outcome exact = given.reference(at::kDouble);
    const Outcome ours = given.ours(at::kFloat);
    const Outcome reference = given.reference(at::kFloat);
    CHECK(relative_error(ours.output, exact.output) <= kFactor * relative_error(reference.output, exact.output));
    const double bound = kFactor * worst_gradient_error(reference.gradients, exact.gradients).error;
    const WorstError worst = worst_gradient_error(ours.gradients, exact.gradients);
    CAPTURE(worst.name);
    CHECK(bound < 1e-4);
    CHECK(worst.error <= bound);
  }
}

// d(output . g)/dw by central differences: an error of h^2 f''' / 6 and of rounding / h, near 1e-9 at h = 1e-5.
TEST_CASE("vit_stage: gradients are those of finite differences") {
  constexpr double kStep = 1e-5;
  for (const auto& options : stage_models()) {
    const Case given(options);
    TestStage ours(options, {0, options.num_units()}, given.parameters, at::kDouble, group_of_one());
    const at::Tensor images = given.images.clone().requires_grad_();
    const at::Tensor output = ours.stage.forward(images, given.context);
    torch::autograd::backward({output}, {given.output_gradient});

    const auto objective = [&] {
      const at::NoGradGuard no_grad;
      return ours.stage.forward(given.images, given.context).mul(given.output_gradient).sum().item<double>();
    };
    for (const auto& spec : ours.buffer.specs()) {
      const auto& parameter = ours.buffer.parameter(spec.name);
      const at::Tensor values = parameter.value.view(-1);
      const int64_t element = values.numel() * 2 / 3;
      const double value = values[element].item<double>();
      values[element].fill_(value + kStep);
      const double above = objective();
      values[element].fill_(value - kStep);
      const double below = objective();
      values[element].fill_(value);
      const double scale = parameter.gradient.abs().max().item<double>();
      const double gradient = parameter.gradient.view(-1)[element].item<double>();
      CAPTURE(spec.name);
      CHECK(std::abs((above - below) / (2 * kStep) - gradient) <= 1e-6 * scale);
    }
  }
}

TEST_CASE("vit_stage: a second backward adds to the gradients") {
  const Case given(small_forecaster());
  TestStage ours(given.options, {0, given.options.num_units()}, given.parameters, at::kDouble, group_of_one());
  const auto run = [&] {
    const at::Tensor output = ours.stage.forward(given.images.clone().requires_grad_(), given.context);
    torch::autograd::backward({output}, {given.output_gradient});
  };
  run();
  const NamedTensors once = [&] {
    NamedTensors copies;
    for (const auto& [name, gradient] : ours.gradients(group_of_one())) {
      copies[name] = gradient.mul(2.0);
    }
    return copies;
  }();
  run();
  CHECK(worst_gradient_error(ours.gradients(group_of_one()), once).error <= kStageBound);
}

// At the end of a stage the residual sum is made alone, inside of one together with the norm that follows.
TEST_CASE("vit_stage: units chained over several stages are the units of one stage, bit by bit") {
  std::vector<std::pair<VitOptions, at::ScalarType>> cases;
  for (VitOptions options : stage_models()) {
    cases.emplace_back(options, at::kDouble);
    options.dropout = 0.1;
    options.drop_path = 0.3;
    cases.emplace_back(options, at::kFloat);
    cases.emplace_back(options, at::kBFloat16);
  }
  for (const auto& [options, type] : cases) {
    CAPTURE(std::string(at::toString(type)));
    const Case given(options);
    const Outcome whole = given.ours(type);
    for (const std::vector<int64_t>& cuts : {std::vector<int64_t>{0, 1, 2, 3, 4}, std::vector<int64_t>{0, 2, 4}}) {
      std::vector<std::unique_ptr<TestStage>> stages;
      at::Tensor x = given.images.to(type, /*non_blocking=*/false, /*copy=*/true).requires_grad_();
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        stages.push_back(
            std::make_unique<TestStage>(options, Range{cuts[i], cuts[i + 1]}, given.parameters, type, group_of_one()));
        x = stages.back()->stage.forward(x, given.context);
      }
      torch::autograd::backward({x}, {given.output_gradient.to(type)});
      CHECK(relative_error(x.detach(), whole.output) == 0.0);
      NamedTensors gradients;
      for (const auto& stage : stages) {
        gradients.merge(stage->gradients(group_of_one()));
      }
      CHECK(worst_gradient_error(gradients, whole.gradients).error == 0.0);
    }
  }
}

TEST_CASE("vit_stage: the image gets no gradient, and evaluation records nothing") {
  const Case given(small_classifier(model::Pooling::kToken));
  TestStage ours(given.options, {0, given.options.num_units()}, given.parameters, at::kDouble, group_of_one());
  const at::Tensor images = given.images.clone().requires_grad_();
  torch::autograd::backward({ours.stage.forward(images, given.context)}, {given.output_gradient});
  CHECK_FALSE(images.grad().defined());

  const at::NoGradGuard no_grad;
  const tensor::StepContext context = test_context(kStageSamples, Mode::kEvaluation);
  const at::Tensor output = ours.stage.forward(images, context);
  CHECK_FALSE(output.requires_grad());
}

// bf16 has 8 bits; the reference is fp64. What matters beside closeness: no activation and no message widens to fp32.
TEST_CASE("vit_stage: bf16 with fp32 gradients stays bf16 between the layers") {
  for (const auto& options : stage_models()) {
    const Case given(options);
    auto specs = model::parameter_specs(options, {0, options.num_units()}, 0, 0, 1);
    auto layout = tensor::make_flat_layout(specs, 1, 1);
    tensor::ParameterBuffer buffer(std::move(specs), std::move(layout), at::kBFloat16, at::kFloat, at::kCPU);
    for (const auto& spec : buffer.specs()) {
      buffer.parameter(spec.name).value.copy_(given.parameters.at(spec.name));
    }
    at::Tensor x = given.images.to(at::kBFloat16).requires_grad_();
    std::vector<std::unique_ptr<model::VitStage>> stages;
    for (int64_t unit = 0; unit < options.num_units(); ++unit) {
      stages.push_back(std::make_unique<model::VitStage>(options, Range{unit, unit + 1}, buffer, group_of_one()));
      x = stages.back()->forward(x, given.context);
      CHECK((x.scalar_type() == at::kBFloat16));
    }
    torch::autograd::backward({x}, {given.output_gradient.to(at::kBFloat16)});
    const Outcome exact = given.reference(at::kDouble);
    CHECK(relative_error(x.detach(), exact.output) <= 0.05);
    NamedTensors gradients;
    for (const auto& spec : buffer.specs()) {
      CHECK((buffer.parameter(spec.name).gradient.scalar_type() == at::kFloat));
      gradients[spec.name] = buffer.parameter(spec.name).gradient;
    }
    const WorstError worst = worst_gradient_error(gradients, exact.gradients);
    CAPTURE(worst.name);
    CHECK(worst.error <= 0.1);
  }
}

TEST_CASE("vit_stage: the graph of a block keeps what its comment lists, and no more") {
  VitOptions options = small_forecaster();
  options.image_height = 48;
  options.image_width = 80;  // 240 tokens
  const MemoryTracker::Attachment attachment;
  TestStage block(options, {1, 2}, test_parameters(options), at::kFloat, group_of_one());
  const at::Tensor x =
      normal_tensor({kStageSamples, options.num_tokens(), options.embed_dim}, 1).to(at::kFloat).requires_grad_();
  const auto held = [] { return MemoryTracker::report().current[static_cast<size_t>(MemoryClass::kActivations)]; };
  const int64_t before = held();
  const tensor::StepContext context = test_context(kStageSamples, Mode::kTraining);
  at::Tensor y;
  {
    const MemoryScope scope(MemoryClass::kActivations);
    y = block.stage.forward(x, context);
  }
  // Of its making: LN(z), u, LN(u), qkv, attention's output, the input and output of GELU; two numbers a norm, one a
  // head; and y itself.
  const int64_t a_token = 3 * options.embed_dim + 3 * options.embed_dim + options.embed_dim + 2 * options.mlp_hidden +
                          4 + options.num_heads + options.embed_dim;
  const int64_t expected = kStageSamples * options.num_tokens() * a_token * 4;
  CHECK(static_cast<double>(held() - before) == doctest::Approx(static_cast<double>(expected)).epsilon(0.01));
  torch::autograd::backward({y}, {at::ones_like(y)});
  y.reset();
  CHECK(held() - before <= x.numel() * 4 + 4096);  // the gradient of x
}

TEST_CASE("vit_stage: no samples give an empty output and zero gradients") {
  for (const auto& options : stage_models()) {
    const Case given(options);
    const Outcome empty =
        run_ours(options, given.parameters, given.images.narrow(0, 0, 0), given.output_gradient.narrow(0, 0, 0),
                 test_context(0, Mode::kTraining), at::kFloat, group_of_one());
    CHECK(empty.output.sizes() == at::IntArrayRef(output_shape(options, 0)));
    for (const auto& [name, gradient] : empty.gradients) {
      CAPTURE(name);
      CHECK(gradient.abs().max().item<double>() == 0.0);
    }
  }
}

namespace {

class ReadyOnceSink : public tensor::GradientSink {
 public:
  void ready(int parameter, int micro_batch) override {
    ++counts[parameter];
    CHECK(micro_batch == 0);
  }
  std::map<int, int> counts;
};

}  // namespace

TEST_CASE("vit_stage: every parameter is reported ready once a micro-batch") {
  for (const auto& options : stage_models()) {
    const Case given(options);
    TestStage ours(options, {0, options.num_units()}, given.parameters, at::kFloat, group_of_one());
    ReadyOnceSink sink;
    auto context = given.context;
    context.sink = &sink;
    const at::Tensor output = ours.stage.forward(given.images.to(at::kFloat).requires_grad_(), context);
    torch::autograd::backward({output}, {given.output_gradient.to(at::kFloat)});
    REQUIRE(sink.counts.size() == ours.buffer.specs().size());
    for (const auto& [parameter, count] : sink.counts) {
      CAPTURE(parameter);
      CHECK(count == 1);
    }
  }
}

TEST_CASE("vit_stage: a norm takes the bias gradient of the branch before it, unless something of that is dropped") {
  const model::VitOptions options = stage_models().front();
  const Case given(options);
  TestStage ours(options, {0, options.num_units()}, given.parameters, at::kFloat, group_of_one());
  const model::LayerNorm norm(ours.buffer, "blocks.0.norm2", options.norm_eps);
  const auto is_taken = [&](double of_features, double of_path, Mode mode) {
    const at::Tensor x = normal_tensor({2, 3, options.embed_dim}, 1).to(at::kFloat);
    model::ResidualStream stream{x};
    stream.branch.output.y = x.clone();
    stream.branch.output.output_bias = std::make_shared<tensor::OutputBias>();
    stream.branch.features.rate = of_features;
    stream.path.rate = of_path;
    const auto bias = stream.branch.output.output_bias;
    const tensor::StepContext context = test_context(2, mode);
    norm.fork(std::move(stream), context);
    return bias->is_taken;
  };
  CHECK(is_taken(0.0, 0.0, Mode::kTraining));
  CHECK_FALSE(is_taken(0.1, 0.0, Mode::kTraining));
  CHECK_FALSE(is_taken(0.0, 0.1, Mode::kTraining));
  CHECK(is_taken(0.1, 0.1, Mode::kEvaluation));
}

TEST_CASE("vit_stage: parameters that are on their way are waited for when forward comes to their unit") {
  for (const auto& options : stage_models()) {
    const Case given(options);
    const auto specs = model::parameter_specs(options, {0, options.num_units()}, 0, 0, 1);
    tensor::ParameterBuffer buffer(specs, tensor::make_flat_layout(specs, 1, 1), at::kDouble, at::kDouble, at::kCPU);
    for (size_t i = 0; i < specs.size(); ++i) {
      buffer.write(static_cast<int>(i),
                   [&](const at::Tensor& values) { values.copy_(given.parameters.at(specs[i].name)); });
    }
    model::VitStage stage(options, {0, options.num_units()}, buffer, group_of_one());
    const at::Tensor flat = buffer.values();
    std::vector<BucketArrival> arrivals;
    for (size_t i = 0; i < buffer.layout().buckets.size(); ++i) {
      const Range range = buffer.layout().buckets[i].range;
      buffer.expect(i, comm::Work(std::make_unique<LateBucket>(flat.narrow(0, range.begin, range.size()),
                                                               static_cast<int>(i), arrivals)));
    }
    const at::Tensor output = stage.forward(given.images.clone().requires_grad_(), given.context);
    CHECK(output.equal(given.ours(at::kDouble).output));
    REQUIRE(arrivals.size() == specs.size());
    CHECK(std::is_sorted(arrivals.begin(), arrivals.end(),
                         [](const BucketArrival& a, const BucketArrival& b) { return a.bucket > b.bucket; }));
    std::set<uint64_t> moments;
    for (const BucketArrival& arrival : arrivals) {
      moments.insert(arrival.num_nodes);
    }
    CHECK(std::ssize(moments) == options.num_units());
  }
}

TEST_CASE("vit_stage: who asks the buffer for parameters gets those that were on their way") {
  const auto options = small_forecaster();
  TestStage ours(options, {0, options.num_units()}, test_parameters(options), at::kDouble, group_of_one());
  std::vector<BucketArrival> arrivals;
  const auto is_late = [&](const std::function<at::Tensor()>& read) {
    const at::Tensor flat = ours.buffer.values();
    arrivals.clear();
    ours.buffer.expect(0, comm::Work(std::make_unique<LateBucket>(
                              flat.narrow(0, 0, ours.buffer.layout().buckets[0].range.size()), 0, arrivals)));
    return read().isnan().any().item<bool>() || arrivals.size() != 1;
  };
  const int last = static_cast<int>(ours.buffer.specs().size()) - 1;
  CHECK_FALSE(is_late([&] { return ours.buffer.values(); }));
  CHECK_FALSE(is_late([&] { return ours.buffer.parameter(last).value; }));
  CHECK_FALSE(is_late([&] {
    at::Tensor seen;
    ours.buffer.write(last, [&](const at::Tensor& values) { seen = values; });
    return seen;
  }));
}
