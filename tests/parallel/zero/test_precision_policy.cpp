// Precision policies, the loss scale, and what half-length gradients and parameters change of an optimizer's step.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "parallel/zero/norms.h"
#include "parallel/zero/rules/update_rule.h"
#include "parallel/zero/step_control.h"
#include "src/base/error.h"
#include "tests/support/contains.h"
#include "tests/support/optimizer_step.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::zero;

namespace {

constexpr int64_t kPolicyCount = 3000;  // several chunks, the last one not whole

UpdateTensors random_stretch(at::ScalarType gradient, at::ScalarType parameter, size_t num_states) {
  UpdateTensors tensors;
  tensors.weights = testing::normal_tensor({kPolicyCount}, 1).to(at::kFloat);
  tensors.gradients = testing::normal_tensor({kPolicyCount}, 2).to(gradient);
  for (size_t i = 0; i < num_states; ++i) {
    tensors.state.push_back(testing::normal_tensor({kPolicyCount}, 3 + i).abs().to(at::kFloat));
  }
  if (parameter != at::kFloat) {
    tensors.parameters = at::zeros({kPolicyCount}, parameter);
  }
  return tensors;
}

}  // namespace

TEST_CASE("precision: policies by name") {
  CHECK(make_precision_policy("fp32") == PrecisionPolicy{at::kFloat, at::kFloat, at::kFloat, at::kFloat});
  CHECK(make_precision_policy("tf32") == make_precision_policy("fp32"));
  CHECK(make_precision_policy("fp64") == PrecisionPolicy{at::kDouble, at::kDouble, at::kDouble, at::kDouble});
  CHECK(make_precision_policy("bf16") == PrecisionPolicy{at::kBFloat16, at::kFloat, at::kFloat, at::kFloat});
  CHECK(make_precision_policy("fp16") == PrecisionPolicy{at::kHalf, at::kFloat, at::kFloat, at::kFloat});
  CHECK(make_precision_policy("bf16").has_own_master());
  CHECK_FALSE(make_precision_policy("fp64").has_own_master());
  std::string message;
  try {
    make_precision_policy("fp8");
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::kUsage);
    message = error.message();
  }
  CHECK(message == "precision 'fp8' is unknown; allowed: fp32, fp64, tf32, bf16, fp16");
}

TEST_CASE("loss scale: grows after an interval without overflow, is halved by each one, and stays within its limits") {
  LossScaleOptions options = loss_scale_options(true, 0.0);
  options.growth_interval = 3;
  LossScaler scaler(options);
  CHECK(scaler.scale() == 65536.0);
  scaler.update(true);
  scaler.update(true);
  CHECK(scaler.scale() == 65536.0);
  scaler.update(true);
  CHECK(scaler.scale() == 131072.0);
  scaler.update(true);
  scaler.update(false);
  CHECK(scaler.scale() == 65536.0);
  CHECK(scaler.state() == LossScaleState{65536.0, 0, 1});
  for (int i = 0; i < 60; ++i) {
    scaler.update(false);
  }
  CHECK(scaler.scale() == LossScaler::kSmallest);
  CHECK_FALSE(scaler.can_back_off());
  for (int i = 0; i < 300; ++i) {
    scaler.update(true);
  }
  CHECK(scaler.scale() == LossScaler::kLargest);
}

TEST_CASE("loss scale: fixed ones stay, bf16 has none, and a saved state is only taken where it means something") {
  LossScaler fixed(loss_scale_options(true, 128.0));
  fixed.update(false);
  CHECK(fixed.scale() == 128.0);
  CHECK(fixed.state().skipped_steps == 1);
  CHECK_FALSE(fixed.can_back_off());
  LossScaler none(loss_scale_options(false, 0.0));
  none.update(false);
  CHECK(none.scale() == 1.0);

  LossScaler dynamic(loss_scale_options(true, 0.0));
  dynamic.restore({1.0, 7, 2});  // a dynamic scale that came down to 1
  CHECK(dynamic.state() == LossScaleState{1.0, 7, 2});
  dynamic.restore(none.state());  // of a bf16 run
  CHECK(dynamic.scale() == 1.0);
  CHECK(dynamic.state().skipped_steps == 1);
  fixed.restore({1024.0, 3, 5});
  CHECK(fixed.scale() == 128.0);
  CHECK(fixed.state().skipped_steps == 5);
}

TEST_CASE("step control: a step begins without a loss and squares, and read() has what was added to each") {
  StepControl control(at::kCPU);
  StepScalars step;
  step.lr = 0.5;
  step.loss_scale = 2.0;
  for (const double loss : {1.5, 0.25}) {  // that of the first step is gone in the second
    control.set(step);
    control.loss().add_(at::full({}, loss, at::kFloat));
    control.sums().add_(at::full({2}, 3.0, at::kDouble));
    const StepScalars read = control.read();
    CHECK(read.loss == loss);
    CHECK(read.squares == 3.0);
    CHECK(read.not_finite == 3.0);
    CHECK(read.lr == 0.5);
    CHECK(read.loss_scale == 2.0);
  }
}

TEST_CASE("precision: every rule updates the master weights as from fp32 gradients, and casts them") {
  for (const auto kind :
       {OptimizerKind::kAdam, OptimizerKind::kAdamW, OptimizerKind::kSgd, OptimizerKind::kLamb, OptimizerKind::kLars}) {
    for (const auto half : {at::kBFloat16, at::kHalf}) {
      for (const bool half_gradients : {false, true}) {
        CAPTURE(optimizer_name(kind));
        OptimizerOptions options;
        options.kind = kind;
        const auto rule = make_update_rule(options, at::kCPU);
        const size_t num_states = rule->state_names().size();
        UpdateTensors tensors = random_stretch(half_gradients ? half : at::kFloat, half, num_states);
        UpdateTensors wide = random_stretch(at::kFloat, at::kFloat, num_states);
        wide.gradients = tensors.gradients.to(at::kFloat);
        const StepScalars step = testing::scalars_of(options, 3, 1e-2, 0.5);
        const at::Tensor sums = at::zeros({2}, at::kDouble);
        const at::Tensor wide_sums = at::zeros({2}, at::kDouble);
        if (rule->is_layerwise()) {
          rule->prepare(tensors, step, 0.1, sums);
          rule->prepare(wide, step, 0.1, wide_sums);
        }
        rule->apply(tensors, step, 0.1, 0.7);
        rule->apply(wide, step, 0.1, 0.7);
        CHECK(sums.equal(wide_sums));
        CHECK(tensors.weights.equal(wide.weights));
        for (size_t i = 0; i < num_states; ++i) {
          CHECK(tensors.state[i].equal(wide.state[i]));
        }
        CHECK(tensors.parameters.equal(wide.weights.to(half)));
      }
    }
  }
}

TEST_CASE("precision: sums of squares of halves are those of the numbers they stand for") {
  for (const auto half : {at::kBFloat16, at::kHalf}) {
    const at::Tensor values = testing::normal_tensor({100003}, 9).to(half);
    const double expected = values.to(at::kDouble).square().sum().item<double>();
    CHECK(sum_of_squares(values) == doctest::Approx(expected).epsilon(1e-12));
  }
}
