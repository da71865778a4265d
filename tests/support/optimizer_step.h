// Steps of an update rule or of an optimizer whose decision a test makes, and the whole state that they leave.
#pragma once

#include <ATen/ops/zeros.h>

#include <cstdint>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/tensor/parameter_buffer.h"
#include "parallel/zero/zero1_optimizer.h"

namespace vit_hybrid::testing {

/// scalars_of_step() of a gradient that is multiplied with `gradient_scale`.
inline zero::StepScalars scalars_of(const zero::OptimizerOptions& options, int64_t number, double lr,
                                    double gradient_scale) {
  zero::StepScalars step = zero::scalars_of_step(options, number, lr);
  step.gradient_scale = gradient_scale;
  return step;
}

/// The next step of `optimizer`, as the engine does it after its decision. Collective as Zero1Optimizer::update().
inline void step(zero::Zero1Optimizer& optimizer, zero::StepControl& control, double lr, double gradient_scale,
                 bool skip = false) {
  zero::StepScalars scalars = optimizer.next_step(lr);
  scalars.gradient_scale = gradient_scale;
  scalars.skip = skip ? 1.0 : 0.0;
  control.set(scalars);
  optimizer.update(control);
  optimizer.end_step(control.read().is_skipped());
}

/// State of one parameter, whole over the shards, in its local shape (that of the tensor rank's slice).
struct WholeState {
  at::Tensor master;
  std::vector<at::Tensor> state;  ///< in the order of Zero1Optimizer::state_names()
};

/// The states of all parameters, in the order of the specs. Collective over groups.shard.
inline std::vector<WholeState> whole_states(const zero::Zero1Optimizer& optimizer,
                                            const tensor::ParameterBuffer& buffer, const zero::StateGroups& groups) {
  const auto options = buffer.values().options().dtype(optimizer.master_type());
  std::vector<WholeState> whole;
  for (const tensor::ParameterSpec& spec : buffer.specs()) {
    whole.push_back({at::zeros(spec.local_shape, options), {}});
    for (size_t i = 0; i < optimizer.state_names().size(); ++i) {
      whole.back().state.push_back(at::zeros(spec.local_shape, options));
    }
  }
  for (const zero::OwnedState& owned : optimizer.owned_state()) {
    WholeState& to = whole[static_cast<size_t>(owned.parameter)];
    const auto put = [&](const at::Tensor& tensor, const at::Tensor& values) {
      tensor.view({-1}).narrow(0, owned.range.begin, owned.range.size()).copy_(values);
    };
    put(to.master, owned.master);
    for (size_t i = 0; i < to.state.size(); ++i) {
      put(to.state[i], owned.state[i]);
    }
  }
  if (groups.shard != nullptr) {
    for (const WholeState& state : whole) {
      groups.shard->all_reduce(state.master, comm::ReduceOp::kSum).wait();
      for (const at::Tensor& tensor : state.state) {
        groups.shard->all_reduce(tensor, comm::ReduceOp::kSum).wait();
      }
    }
  }
  return whole;
}

}  // namespace vit_hybrid::testing
