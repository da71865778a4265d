// StepControl: number types by name, bias corrections, the dynamic loss scale, and the scalars on their device.
#include "parallel/zero/step_control.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "parallel/zero/rules/device_update.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"

namespace vit_hybrid::zero {

namespace {

// 1 - beta^t: the share of its expectation that a moment, which starts from zero, has at step t.
double bias_correction(double beta, int64_t t) {
  return 1.0 - std::pow(beta, static_cast<double>(t));
}

constexpr int64_t kCount = sizeof(StepScalars) / sizeof(double);
static_assert(std::is_trivially_copyable_v<StepScalars> && std::is_standard_layout_v<StepScalars>);
static_assert(offsetof(StepScalars, not_finite) == offsetof(StepScalars, squares) + sizeof(double));

}  // namespace

PrecisionPolicy make_precision_policy(const std::string& name) {
  if (name == "fp32" || name == "tf32") {
    return {at::kFloat, at::kFloat, at::kFloat, at::kFloat};
  }
  if (name == "fp64") {
    return {at::kDouble, at::kDouble, at::kDouble, at::kDouble};
  }
  if (name == "bf16" || name == "fp16") {
    return {name == "bf16" ? at::kBFloat16 : at::kHalf, at::kFloat, at::kFloat, at::kFloat};
  }
  throw Error(ErrorClass::kUsage, str("precision '", name, "' is unknown; allowed: fp32, fp64, tf32, bf16, fp16"));
}

StepScalars scalars_of_step(const OptimizerOptions& options, int64_t number, double lr) {
  StepScalars step;
  step.lr = lr;
  step.step_size = lr / bias_correction(options.beta1, number);
  step.mean_scale = 1.0 / bias_correction(options.beta1, number);
  step.root_scale = 1.0 / std::sqrt(bias_correction(options.beta2, number));
  return step;
}

LossScaleOptions loss_scale_options(bool is_fp16, double fixed) {
  LossScaleOptions options;
  options.is_dynamic = is_fp16 && fixed == 0.0;
  options.initial = !is_fp16 ? 1.0 : options.is_dynamic ? 65536.0 : fixed;
  return options;
}

void LossScaler::update(bool finite) {
  if (!finite) {
    ++skipped_steps_;
    good_steps_ = 0;
    if (options_.is_dynamic) {
      scale_ = std::max(scale_ * options_.backoff, kSmallest);
    }
    return;
  }
  if (!options_.is_dynamic) {
    return;
  }
  ++good_steps_;
  if (good_steps_ >= options_.growth_interval) {
    scale_ = std::min(scale_ * options_.growth, kLargest);
    good_steps_ = 0;
  }
}

void LossScaler::restore(const LossScaleState& state) {
  skipped_steps_ = state.skipped_steps;
  if (options_.is_dynamic && state.scale > 0.0) {
    scale_ = state.scale;
    good_steps_ = state.good_steps;
  }
}

StepControl::StepControl(c10::Device device) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  values_ = at::zeros({kCount}, at::TensorOptions(at::kDouble).device(device));
  loss_ = values_.select(0, offsetof(StepScalars, loss) / sizeof(double));
  sums_ = values_.narrow(0, offsetof(StepScalars, squares) / sizeof(double), 2);
  host_ = device.is_cpu() ? values_ : at::empty({kCount}, at::TensorOptions(at::kDouble).pinned_memory(true));
}

void StepControl::set(const StepScalars& step) {
  *scalars_in(host_) = step;
  if (!values_.is_cpu()) {
    values_.copy_(host_, /*non_blocking=*/true);
  }
}

void StepControl::decide() {
  if (values_.is_cpu()) {
    zero::decide(*scalars_in(values_));
  } else {
    decide_cuda(values_);
  }
}

StepScalars StepControl::read() const {
  if (!values_.is_cpu()) {
    host_.copy_(values_);
  }
  return *scalars_in(host_);
}

StepScalars* scalars_in(const at::Tensor& values) {
  VH_ASSERT(values.scalar_type() == at::kDouble && values.is_contiguous() && values.numel() == kCount,
            "no numbers of a step");
  return reinterpret_cast<StepScalars*>(values.mutable_data_ptr<double>());
}

}  // namespace vit_hybrid::zero
