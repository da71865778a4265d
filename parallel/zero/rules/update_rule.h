// UpdateRule: what an optimizer does with a stretch of weights, whoever owns it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>

#include <memory>
#include <string>
#include <vector>

#include "parallel/zero/optimizer_options.h"
#include "parallel/zero/step_control.h"

namespace vit_hybrid::zero {

/// Neighbouring weights with one weight decay: flat tensors of equal length on one device.
struct UpdateTensors {
  at::Tensor weights;             ///< of the master type
  at::Tensor gradients;           ///< of the master type, or half as long
  std::vector<at::Tensor> state;  ///< of the master type, in the order of UpdateRule::state_names()
  at::Tensor parameters;          ///< what is cast from the weights; undefined where the weights are the parameters
};

struct OwnedTensors;  // parallel/zero/sharding.h

/// One optimizer's arithmetic, chosen once for a run. It updates each element by itself, so that its bits do not depend
/// on where a stretch is cut, nor on whether all stretches are updated at once. A layer-wise rule also scales the step
/// of each parameter by norms of the whole parameter: it sees every stretch twice, first in prepare(), then, when the
/// sums of all owners are added up, in apply().
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  /// PyTorch's names of the tensors that are kept of each parameter, which begin as zeros.
  virtual std::vector<std::string> state_names() const = 0;

  virtual bool is_layerwise() const { return false; }
  /// First pass of a layer-wise rule over a stretch of one parameter. Adds the sums of squares of its weights and of
  /// its update (of the gradient, for LARS) to `sums`, two doubles on the tensors' device; may change the state.
  virtual void prepare(const UpdateTensors& tensors, const StepScalars& step, double weight_decay,
                       const at::Tensor& sums) const;
  /// What scales the step of a parameter with these norms.
  virtual double trust_ratio(double weight_norm, double update_norm, double weight_decay) const;

  /// Whether it updates all that a rank owns by one call of apply_to_owned(), in place of apply() for each stretch.
  virtual bool updates_at_once() const { return false; }
  /// apply() for all segments of what a rank owns, or nothing where the step is skipped. `step`: StepControl::values(),
  /// of which the host reads nothing. Weights and biases alternate in what is owned: a launch for each run of one
  /// weight decay would be hundreds of launches a step.
  virtual void apply_to_owned(const OwnedTensors& owned, const at::Tensor& step) const;

  /// Updates weights and state in place, and casts the new weights into the parameters. `trust`: trust_ratio() of the
  /// parameter; 1 for those whose step is not scaled.
  virtual void apply(const UpdateTensors& tensors, const StepScalars& step, double weight_decay,
                     double trust) const = 0;
};

/// The rule of `options`: in one pass over memory on the host, and Adam's on a GPU, which updates all at once; by ATen
/// operations, which work on any device, otherwise.
std::unique_ptr<UpdateRule> make_update_rule(const OptimizerOptions& options, at::DeviceType device);

/// state_names() of the rule of `options`.
std::vector<std::string> optimizer_state_names(const OptimizerOptions& options);

}  // namespace vit_hybrid::zero
