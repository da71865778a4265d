// Zero1Optimizer: Adam on the owned ranges of the flat buffer, then everybody gets the new parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/tensor/parameter_buffer.h"
#include "parallel/zero/adam.h"
#include "parallel/zero/precision_policy.h"
#include "parallel/zero/sharding.h"

namespace vit_hybrid::zero {

/// What the trainer decides for one step; the same on all ranks of the world.
struct StepDecision {
  double lr = 0.0;
  double gradient_scale = 1.0;  ///< the clip coefficient
  bool skip = false;            ///< the gradients are not finite: nothing changes, not even the step number
};

/// State of one parameter, whole over the data axis, in its local shape (that of the tensor rank's slice).
struct ParameterState {
  at::Tensor master;
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
};

/// State of the elements of one parameter that a rank owns: flat views, which may be written to, of one length.
struct OwnedState {
  int parameter = 0;  ///< index among the specs
  Range range;        ///< elements of the parameter's local slice, flat in row-major order
  at::Tensor master;
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
};

/// Optimizer of a rank. Under ZeRO-1 it holds moments of its shard of each bucket only, under stage 0 of all. The
/// master weights are views of the parameter buffer (master and compute type are the same).
class Zero1Optimizer {
 public:
  /// Allocates the moments, zeroed. `buffer` and `data` must outlive the optimizer.
  Zero1Optimizer(tensor::ParameterBuffer& buffer, comm::Communicator& data, ZeroStage stage,
                 const PrecisionPolicy& precision, const AdamOptions& options);

  /// Updates the owned ranges from the reduced gradients, gathers the parameters over data bucket by bucket while the
  /// next one is updated, and raises the buffer's version. Collective over data.
  void step(const StepDecision& decision);

  /// Steps done so far (without skipped ones).
  int64_t num_steps() const { return num_steps_; }
  /// Says how many were done before, when a state is loaded; the same on all ranks of the world.
  void set_num_steps(int64_t num_steps) { num_steps_ = num_steps; }

  /// What this rank owns, in ascending order of buckets, without empty ranges: its shards under ZeRO-1, everything
  /// under stage 0. Padding is not part of it. Local.
  std::vector<OwnedState> owned_state() const;

  /// Calls `visit` for each parameter, in ascending order of buckets, with its gathered state; one bucket's memory at a
  /// time. Collective over data.
  void visit_state(const std::function<void(int parameter, const ParameterState& state)>& visit) const;

 private:
  // Neighbouring elements of the flat buffer with the same weight decay; its moments begin at `state`.
  struct Stretch {
    Range range;
    int64_t state;
    double weight_decay;
  };
  struct Bucket {
    Range own;
    int64_t state;  // where the moments of `own` begin
    std::vector<Stretch> stretches;
  };

  Bucket make_bucket(int bucket, int64_t state) const;
  double weight_decay_of(int parameter) const;
  void update(const Bucket& bucket, const AdamStep& step);
  comm::Work gather(size_t bucket);
  at::Tensor gathered(size_t bucket, const at::Tensor& own) const;

  tensor::ParameterBuffer& buffer_;
  comm::Communicator& data_;
  ZeroStage stage_;
  AdamOptions options_;
  std::vector<Bucket> buckets_;
  at::Tensor exp_avg_;
  at::Tensor exp_avg_sq_;
  int64_t num_steps_ = 0;
};

}  // namespace vit_hybrid::zero
