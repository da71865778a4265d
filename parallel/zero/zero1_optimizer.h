// Zero1Optimizer (ZeRO-1): an update rule on the owned ranges of the flat buffer, then everybody gets the new
// parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/tensor/parameter_buffer.h"
#include "parallel/zero/norms.h"
#include "parallel/zero/optimizer_options.h"
#include "parallel/zero/rules/update_rule.h"
#include "parallel/zero/sharding.h"
#include "parallel/zero/step_control.h"

namespace vit_hybrid::zero {

/// State of the elements of one parameter that a rank owns: flat views, which may be written to, of one length.
struct OwnedState {
  int parameter = 0;  ///< index among the specs
  Range range;        ///< elements of the parameter's local slice, flat in row-major order
  at::Tensor master;
  std::vector<at::Tensor> state;  ///< in the order of Zero1Optimizer::state_names()
};

/// Optimizer of a rank. It holds the state of its shard of each bucket only; of all where the state is not split. The
/// master weights are part of it, except where they are of the parameters' type: then they are views of the buffer.
class Zero1Optimizer final : public tensor::ParameterWriter {
 public:
  /// Allocates the state, zeroed. `buffer` and the communicators must outlive the optimizer. Collective over the data
  /// axis.
  Zero1Optimizer(tensor::ParameterBuffer& buffer, const StateGroups& groups, comm::Communicator& tensor,
                 const PrecisionPolicy& precision, const OptimizerOptions& options);

  /// As the option --optimizer has it.
  std::string name() const { return optimizer_name(options_.kind); }
  /// Of the tensors that are kept of each parameter: "exp_avg".
  std::vector<std::string> state_names() const { return rule_->state_names(); }

  /// Type of the master weights and of the state.
  at::ScalarType master_type() const { return master_type_; }

  /// A parameter and, of it, the master weights that this rank owns.
  void write(int parameter, const std::function<void(const at::Tensor& values)>& fill) override;

  /// The scalars of the next step, of which the loss scale and what depends on the gradient are left to set.
  StepScalars next_step(double lr) const { return scalars_of_step(options_, num_steps_ + 1, lr); }

  /// Updates the owned ranges from the reduced gradients by the control's scalars, the same on all ranks of the world,
  /// casts them to the parameters' type and starts to gather the parameters over the shards, in the order in which
  /// forward uses them: ParameterBuffer::await() tells when they are there. Changes nothing where the step is skipped.
  /// A rule that updates all at once leaves the scalars where they are: its host does not wait, and gathers in any
  /// case. With one that goes stretch by stretch the host reads them; the next bucket is updated while one is gathered.
  /// Collective over the data axis, with a layer-wise rule also over tensor.
  void update(const StepControl& control);
  /// What the host keeps of a step when it knows how it ended: counts it and raises the buffer's version, unless it was
  /// skipped.
  void end_step(bool skipped);

  /// Steps done so far (without skipped ones).
  int64_t num_steps() const { return num_steps_; }
  /// Says how many were done before, when a state is loaded; the same on all ranks of the world.
  void set_num_steps(int64_t num_steps) { num_steps_ = num_steps; }

  /// What this rank owns, in ascending order of buckets, without empty ranges. Padding is not part of it. Local.
  std::vector<OwnedState> owned_state() const;

 private:
  // Neighbouring elements of the flat buffer with the same weight decay, of one parameter where the rule is layer-wise;
  // its state begins at `state`.
  struct Stretch {
    Range range;
    int64_t state;
    int parameter;  // the first one
    double weight_decay;
  };
  struct Bucket {
    Range own;
    int64_t state;  // where the state of `own` begins
    std::vector<Stretch> stretches;
  };

  Bucket make_bucket(int bucket, int64_t state) const;
  bool decays(int parameter) const;
  UpdateTensors tensors_of(const Stretch& stretch) const;
  at::Tensor master_of(const Range& range, int64_t state) const;
  void for_each_owned(const std::function<void(int parameter, const Range& part, int64_t state)>& visit) const;
  void measure(const StepScalars& step);
  double trust_of(const Stretch& stretch) const;
  std::vector<Segment> segments() const;
  void update_bucket(const Bucket& bucket, const StepScalars& step);
  void start_gather(size_t bucket);

  tensor::ParameterBuffer& buffer_;
  at::Tensor values_;  // the buffer's: what a rank owns of them is there while other parts are on their way
  StateGroups groups_;
  at::ScalarType master_type_;
  OptimizerOptions options_;
  std::unique_ptr<UpdateRule> rule_;
  ParameterNorms norms_;
  std::vector<Bucket> buckets_;
  std::vector<at::Tensor> state_;  // flat; of the owned ranges of all buckets
  at::Tensor master_;              // the same; undefined where the parameters themselves are the master weights
  at::Tensor segments_;            // segment_tensor() of all stretches; undefined where the rule does not need it
  int64_t num_steps_ = 0;
};

}  // namespace vit_hybrid::zero
