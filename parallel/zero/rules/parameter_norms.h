// ParameterNorms: norms of whole parameters and of their updates, for layer-wise rules.
#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/comm/communicator.h"
#include "parallel/tensor/parameter_buffer.h"
#include "parallel/zero/sharding.h"

namespace vit_hybrid::zero {

/// Every rank adds up the squares of what it owns of each parameter of its stage, each element counted once; one small
/// all-reduce over the data axis (under stage 1) and one over the tensor axis make them sums over the global tensors.
/// In double, so that layouts differ by rounding.
class ParameterNorms {
 public:
  /// All arguments outlive it.
  ParameterNorms(const tensor::ParameterBuffer& buffer, comm::Communicator& data, comm::Communicator& tensor,
                 ZeroStage stage);

  /// Begins a step.
  void clear();
  /// The two sums of a parameter, of weights and update: doubles on the buffer's device, to be added to.
  at::Tensor sums_of(int parameter) const;
  /// Makes the norms, the same bits on all ranks of the stage. Collective over data and tensor.
  void reduce();

  double weight_norm(int parameter) const { return norm(parameter, 0); }
  double update_norm(int parameter) const { return norm(parameter, 1); }

 private:
  double norm(int parameter, int64_t which) const;

  const tensor::ParameterBuffer& buffer_;
  comm::Communicator& data_;
  comm::Communicator& tensor_;
  ZeroStage stage_;
  at::Tensor sums_;  // [parameters, 2]
  at::Tensor host_;  // the reduced sums
};

}  // namespace vit_hybrid::zero
