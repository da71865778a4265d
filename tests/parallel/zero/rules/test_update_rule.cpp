// Adam, AdamW and SGD against LibTorch's, LAMB and LARS against their papers' formulas; what rules say of themselves.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <doctest/doctest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <memory>
#include <string>

#include "parallel/zero/optimizer_options.h"
#include "parallel/zero/rules/update_rule.h"
#include "src/base/error.h"
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

namespace {

at::Tensor normals(int64_t count, uint64_t key, at::ScalarType type) {
  const at::Tensor values = at::empty({count}, at::kDouble);
  const RandomStream stream(99, Purpose::kTest, key);
  for (int64_t i = 0; i < count; ++i) {
    values.data_ptr<double>()[i] = stream.normal(static_cast<uint64_t>(i));
  }
  return values.to(type);
}

UpdateTensors fresh(const at::Tensor& weights) {
  return {weights.clone(), at::zeros_like(weights), {at::zeros_like(weights), at::zeros_like(weights)}, {}};
}

OptimizerOptions adam_options(OptimizerKind kind, double beta2, double eps, double weight_decay) {
  OptimizerOptions options;
  options.kind = kind;
  options.beta2 = beta2;
  options.eps = eps;
  options.weight_decay = weight_decay;
  return options;
}

void update(const UpdateTensors& tensors, const OptimizerOptions& options, const StepScalars& step,
            double weight_decay) {
  make_update_rule(options, at::kCPU)->apply(tensors, step, weight_decay, 1.0);
}

std::unique_ptr<torch::optim::Optimizer> reference(const at::Tensor& weights, const OptimizerOptions& options,
                                                   double lr) {
  if (options.kind == OptimizerKind::kAdamW) {
    return std::make_unique<torch::optim::AdamW>(std::vector<at::Tensor>{weights},
                                                 torch::optim::AdamWOptions(lr)
                                                     .betas({options.beta1, options.beta2})
                                                     .eps(options.eps)
                                                     .weight_decay(options.weight_decay));
  }
  return std::make_unique<torch::optim::Adam>(std::vector<at::Tensor>{weights},
                                              torch::optim::AdamOptions(lr)
                                                  .betas({options.beta1, options.beta2})
                                                  .eps(options.eps)
                                                  .weight_decay(options.weight_decay));
}

// Error of the weights after ten steps with a constant learning rate.
double error_after_ten_steps(const OptimizerOptions& options, at::ScalarType type) {
  constexpr int64_t kElements = 1001;  // no multiple of a vector's width
  constexpr double kRate = 3e-3;
  const at::Tensor start = normals(kElements, 0, type);
  const UpdateTensors ours = fresh(start);
  const at::Tensor theirs = start.clone().set_requires_grad(true);
  const auto optimizer = reference(theirs, options, kRate);
  for (int64_t step = 1; step <= 10; ++step) {
    const at::Tensor gradient = normals(kElements, static_cast<uint64_t>(step), type).mul(std::pow(10.0, step % 4 - 2));
    ours.gradients.copy_(gradient);
    update(ours, options, testing::scalars_of(options, step, kRate, 1.0), options.weight_decay);
    theirs.mutable_grad() = gradient;
    optimizer->step();
  }
  return testing::relative_error(ours.weights, theirs.detach());
}

}  // namespace

TEST_CASE("adam: ten steps are those of torch::optim") {
  for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    for (const double weight_decay : {0.0, 0.1}) {
      const OptimizerOptions options = adam_options(kind, 0.95, 1e-8, weight_decay);
      // Ten steps of a few roundings each, on weights up to 4 and steps of 3e-3.
      CHECK(error_after_ten_steps(options, at::kDouble) <= 1e-14);
      CHECK(error_after_ten_steps(options, at::kFloat) <= 1e-6);
    }
  }
}

TEST_CASE("adam: closed forms") {
  const double lr = 0.5;
  const OptimizerOptions options = adam_options(OptimizerKind::kAdam, 0.999, 1e-3, 0.0);
  SUBCASE("the first step is lr g / (|g| + eps)") {
    const UpdateTensors tensors = fresh(at::full({3}, 2.0, at::kDouble));
    tensors.gradients.fill_(-4.0);
    update(tensors, options, testing::scalars_of(options, 1, lr, 1.0), 0.0);
    CHECK(tensors.weights[1].item<double>() == doctest::Approx(2.0 + lr * 4.0 / (4.0 + 1e-3)).epsilon(1e-14));
    CHECK(tensors.state[0][1].item<double>() == doctest::Approx(-0.4).epsilon(1e-14));
    CHECK(tensors.state[1][1].item<double>() == doctest::Approx(0.016).epsilon(1e-12));
  }
  SUBCASE("with a constant gradient every step is the same") {
    const UpdateTensors tensors = fresh(at::full({1}, 2.0, at::kDouble));
    tensors.gradients.fill_(4.0);
    for (int64_t step = 1; step <= 20; ++step) {
      update(tensors, options, testing::scalars_of(options, step, lr, 1.0), 0.0);
      CHECK(tensors.weights.item<double>() ==
            doctest::Approx(2.0 - static_cast<double>(step) * lr * 4.0 / (4.0 + 1e-3)).epsilon(1e-12));
    }
  }
  SUBCASE("the scale multiplies the gradient, not the decay") {
    const UpdateTensors scaled = fresh(at::full({1}, 2.0, at::kDouble));
    const UpdateTensors plain = fresh(at::full({1}, 2.0, at::kDouble));
    scaled.gradients.fill_(8.0);
    plain.gradients.fill_(2.0);
    update(scaled, options, testing::scalars_of(options, 1, lr, 0.25), 0.1);
    update(plain, options, testing::scalars_of(options, 1, lr, 1.0), 0.1);
    CHECK(scaled.weights.equal(plain.weights));
  }
  SUBCASE("with no gradient AdamW only decays") {
    OptimizerOptions decoupled = options;
    decoupled.kind = OptimizerKind::kAdamW;
    const UpdateTensors tensors = fresh(at::full({1}, 2.0, at::kDouble));
    update(tensors, decoupled, testing::scalars_of(decoupled, 1, lr, 1.0), 0.1);
    CHECK(tensors.weights.item<double>() == doctest::Approx(2.0 * (1.0 - lr * 0.1)).epsilon(1e-15));
  }
}

TEST_CASE("adam: the bits do not depend on where a stretch is cut") {
  constexpr int64_t kCount = 1003;
  const OptimizerOptions options = adam_options(OptimizerKind::kAdamW, 0.95, 1e-8, 0.1);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const UpdateTensors whole = fresh(normals(kCount, 0, type));
    const UpdateTensors parts = fresh(normals(kCount, 0, type));
    for (int64_t step = 1; step <= 3; ++step) {
      whole.gradients.copy_(normals(kCount, static_cast<uint64_t>(step), type));
      parts.gradients.copy_(whole.gradients);
      update(whole, options, testing::scalars_of(options, step, 1e-2, 0.7), 0.1);
      for (int64_t begin = 0; begin < kCount; begin += 37) {
        const int64_t size = std::min<int64_t>(37, kCount - begin);
        const UpdateTensors part{parts.weights.narrow(0, begin, size),
                                 parts.gradients.narrow(0, begin, size),
                                 {parts.state[0].narrow(0, begin, size), parts.state[1].narrow(0, begin, size)},
                                 {}};
        update(part, options, testing::scalars_of(options, step, 1e-2, 0.7), 0.1);
      }
    }
    CHECK(parts.weights.equal(whole.weights));
    CHECK(parts.state[0].equal(whole.state[0]));
    CHECK(parts.state[1].equal(whole.state[1]));
  }
}
