// Bias corrections.
#include "parallel/zero/step_scalars.h"

namespace vit_hybrid::zero {

namespace {

// 1 - beta^t: the share of its expectation that a moment, which starts from zero, has at step t.
double bias_correction(double beta, int64_t t) {
  return 1.0 - std::pow(beta, static_cast<double>(t));
}

}  // namespace

StepScalars scalars_of_step(const OptimizerOptions& options, int64_t number, double lr) {
  StepScalars step;
  step.lr = lr;
  step.step_size = lr / bias_correction(options.beta1, number);
  step.mean_scale = 1.0 / bias_correction(options.beta1, number);
  step.root_scale = 1.0 / std::sqrt(bias_correction(options.beta2, number));
  return step;
}

}  // namespace vit_hybrid::zero
