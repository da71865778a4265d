// Adam and AdamW against LibTorch's own optimizers and closed forms.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <doctest/doctest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <memory>

#include "parallel/zero/precision_policy.h"
#include "parallel/zero/rules/update_rule.h"
#include "src/base/error.h"
#include "src/base/random.h"
#include "tests/support/compare.h"
#include "tests/support/optimizer_step.h"

using namespace vit_hybrid;
using namespace vit_hybrid::zero;

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
  constexpr int64_t kCount = 1001;  // no multiple of a vector's width
  constexpr double kLr = 3e-3;
  const at::Tensor start = normals(kCount, 0, type);
  const UpdateTensors ours = fresh(start);
  const at::Tensor theirs = start.clone().set_requires_grad(true);
  const auto optimizer = reference(theirs, options, kLr);
  for (int64_t step = 1; step <= 10; ++step) {
    const at::Tensor gradient = normals(kCount, static_cast<uint64_t>(step), type).mul(std::pow(10.0, step % 4 - 2));
    ours.gradients.copy_(gradient);
    update(ours, options, testing::scalars_of(options, step, kLr, 1.0), options.weight_decay);
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
