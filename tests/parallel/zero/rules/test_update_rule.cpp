// SGD against LibTorch's, LAMB and LARS against their papers' formulas, and what the rules say of themselves.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <doctest/doctest.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <string>

#include "parallel/zero/rules/update_rule.h"
#include "src/base/random.h"
#include "tests/support/compare.h"
#include "tests/support/optimizer_step.h"
#include "tests/support/textbook_optimizer.h"

using namespace vit_hybrid;
using namespace vit_hybrid::zero;

namespace {

constexpr int64_t kCount = 40'003;  // several blocks, and no multiple of a vector's width
constexpr int64_t kSteps = 5;
constexpr double kLr = 3e-2;
constexpr double kScale = 0.5;  // of the gradient

at::Tensor normals(uint64_t key) {
  const at::Tensor values = at::empty({kCount}, at::kDouble);
  const RandomStream stream(98, Purpose::kTest, key);
  for (int64_t i = 0; i < kCount; ++i) {
    values.data_ptr<double>()[i] = stream.normal(static_cast<uint64_t>(i));
  }
  return values;
}

at::Tensor gradient(int64_t step) {
  return normals(static_cast<uint64_t>(step)).mul(std::pow(10.0, step % 4 - 2));
}

OptimizerOptions options_of(OptimizerKind kind, double weight_decay) {
  OptimizerOptions options;
  options.kind = kind;
  options.weight_decay = weight_decay;
  return options;
}

UpdateTensors fresh(const UpdateRule& rule, const at::Tensor& weights) {
  UpdateTensors tensors{weights.clone(), at::zeros_like(weights), {}, {}};
  for (size_t i = 0; i < rule.state_names().size(); ++i) {
    tensors.state.push_back(at::zeros_like(weights));
  }
  return tensors;
}

// One step of the only owner of a parameter.
void step_alone(const UpdateRule& rule, const UpdateTensors& tensors, const StepScalars& step, double weight_decay) {
  double trust = 1.0;
  if (rule.is_layerwise()) {
    const at::Tensor sums = at::zeros({2}, at::kDouble);
    rule.prepare(tensors, step, weight_decay, sums);
    trust = rule.trust_ratio(std::sqrt(sums[0].item<double>()), std::sqrt(sums[1].item<double>()), weight_decay);
  }
  rule.apply(tensors, step, weight_decay, trust);
}

UpdateTensors after_five_steps(const OptimizerOptions& options, at::ScalarType type, at::DeviceType device) {
  const auto rule = make_update_rule(options, device);
  const UpdateTensors ours = fresh(*rule, normals(0).to(type));
  for (int64_t step = 1; step <= kSteps; ++step) {
    ours.gradients.copy_(gradient(step));
    step_alone(*rule, ours, testing::scalars_of(options, step, kLr, kScale), options.weight_decay);
  }
  return ours;
}

double length(const at::Tensor& x) {
  return std::sqrt((x * x).sum().item<double>());
}

testing::TextbookOptimizer by_the_book(const OptimizerOptions& options) {
  testing::TextbookOptimizer book(options, normals(0), true);
  for (int64_t step = 1; step <= kSteps; ++step) {
    book.step(gradient(step) * kScale, kLr);
  }
  return book;
}

double bound_of(at::ScalarType type) {
  return type == at::kDouble ? 1e-14 : 1e-6;
}

}  // namespace

TEST_CASE("update rules: five steps of SGD are those of torch::optim") {
  struct Case {
    double momentum;
    bool nesterov;
  };
  for (const Case c : {Case{0.0, false}, Case{0.9, false}, Case{0.8, true}}) {
    for (const double weight_decay : {0.0, 0.1}) {
      const at::Tensor theirs = normals(0).set_requires_grad(true);
      torch::optim::SGD reference(
          {theirs}, torch::optim::SGDOptions(kLr).momentum(c.momentum).nesterov(c.nesterov).weight_decay(weight_decay));
      for (int64_t step = 1; step <= kSteps; ++step) {
        theirs.mutable_grad() = gradient(step) * kScale;
        reference.step();
      }
      OptimizerOptions options = options_of(OptimizerKind::kSgd, weight_decay);
      options.momentum = c.momentum;
      options.nesterov = c.nesterov;
      CAPTURE(c.momentum);
      CAPTURE(weight_decay);
      for (const at::DeviceType device : {at::kCPU, at::kCUDA}) {
        for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
          const UpdateTensors ours = after_five_steps(options, type, device);
          CHECK(testing::relative_error(ours.weights, theirs.detach()) <= bound_of(type));
          CHECK(ours.state.size() == (c.momentum > 0.0 ? 1 : 0));
        }
      }
    }
  }
}

TEST_CASE("update rules: five steps of LAMB and LARS are those of their papers") {
  for (const OptimizerKind kind : {OptimizerKind::kLamb, OptimizerKind::kLars}) {
    for (const double weight_decay : {0.0, 0.1}) {
      OptimizerOptions options = options_of(kind, weight_decay);
      options.momentum = 0.8;
      options.trust_coefficient = 0.4;
      const testing::TextbookOptimizer book = by_the_book(options);
      CAPTURE(optimizer_name(kind));
      CAPTURE(weight_decay);
      for (const at::DeviceType device : {at::kCPU, at::kCUDA}) {
        for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
          const UpdateTensors ours = after_five_steps(options, type, device);
          CHECK(testing::relative_error(ours.weights, book.weights()) <= bound_of(type));
          const auto names = optimizer_state_names(options);
          REQUIRE(ours.state.size() == names.size());
          for (size_t i = 0; i < names.size(); ++i) {
            CHECK(testing::relative_error(ours.state[i], book.states().at(names[i])) <= bound_of(type));
          }
        }
      }
    }
  }
}

TEST_CASE("update rules: a step of LAMB is lr times the length of the weights, and one of nothing is not scaled") {
  const OptimizerOptions options = options_of(OptimizerKind::kLamb, 0.1);
  const auto rule = make_update_rule(options, at::kCPU);
  const UpdateTensors tensors = fresh(*rule, normals(0));
  tensors.gradients.copy_(normals(1).mul(1e-3));
  step_alone(*rule, tensors, testing::scalars_of(options, 1, kLr, 1.0), 0.1);
  CHECK(length(tensors.weights - normals(0)) == doctest::Approx(kLr * length(normals(0))).epsilon(1e-12));
  for (const OptimizerKind kind : {OptimizerKind::kLamb, OptimizerKind::kLars}) {
    const auto any = make_update_rule(options_of(kind, 0.1), at::kCPU);
    CHECK(any->trust_ratio(0.0, 2.0, 0.1) == 1.0);
    CHECK(any->trust_ratio(2.0, 0.0, 0.1) == 1.0);
  }
}

TEST_CASE("update rules: the bits of what LAMB and LARS change do not depend on where a stretch is cut") {
  for (const OptimizerKind kind : {OptimizerKind::kLamb, OptimizerKind::kLars, OptimizerKind::kSgd}) {
    const OptimizerOptions options = options_of(kind, 0.1);
    const StepScalars step = testing::scalars_of(options, 1, kLr, kScale);
    const auto rule = make_update_rule(options, at::kCPU);
    const UpdateTensors whole = fresh(*rule, normals(0).to(at::kFloat));
    const UpdateTensors parts = fresh(*rule, normals(0).to(at::kFloat));
    whole.gradients.copy_(normals(1));
    parts.gradients.copy_(whole.gradients);
    const at::Tensor sums = at::zeros({2, 2}, at::kDouble);
    const auto update = [&](const UpdateTensors& all, int64_t begin, int64_t size, int64_t row) {
      UpdateTensors part{all.weights.narrow(0, begin, size), all.gradients.narrow(0, begin, size), {}, {}};
      for (const at::Tensor& state : all.state) {
        part.state.push_back(state.narrow(0, begin, size));
      }
      if (rule->is_layerwise()) {
        rule->prepare(part, step, 0.1, sums[row]);
      }
      rule->apply(part, step, 0.1, 0.7);
    };
    update(whole, 0, kCount, 0);
    for (int64_t begin = 0; begin < kCount; begin += 1237) {
      update(parts, begin, std::min<int64_t>(1237, kCount - begin), 1);
    }
    CHECK(parts.weights.equal(whole.weights));
    CHECK(parts.state[0].equal(whole.state[0]));
    CHECK(testing::relative_error(sums[1], sums[0]) <= 1e-14);
  }
}

TEST_CASE("update rules: names and states") {
  const auto states = [](OptimizerKind kind) { return optimizer_state_names(options_of(kind, 0.0)); };
  const std::vector<std::string> moments = {"exp_avg", "exp_avg_sq"};
  const std::vector<std::string> buffer = {"momentum_buffer"};
  CHECK(states(OptimizerKind::kAdam) == moments);
  CHECK(states(OptimizerKind::kAdamW) == moments);
  CHECK(states(OptimizerKind::kLamb) == moments);
  CHECK(states(OptimizerKind::kSgd) == buffer);
  CHECK(states(OptimizerKind::kLars) == buffer);
  OptimizerOptions plain = options_of(OptimizerKind::kSgd, 0.0);
  plain.momentum = 0.0;
  CHECK(optimizer_state_names(plain).empty());
  CHECK(optimizer_name(OptimizerKind::kLamb) == "lamb");
}
