// GradientNorm: the L2 norm of the whole model's gradient, every parameter counted once.
#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/comm/communicator.h"
#include "parallel/tensor/parameter_buffer.h"
#include "parallel/zero/rules/sum_of_squares.h"
#include "parallel/zero/sharding.h"

namespace vit_hybrid::zero {

/// Counts each element on one rank of the world: on the first of the data ranks that own it, and, if it is replicated
/// over the tensor axis, on tensor rank 0.
class GradientNorm {
 public:
  GradientNorm(const tensor::ParameterBuffer& buffer, StatePlace place, int tensor_rank, comm::Communicator& world);

  /// After GradientReducer::finish(): sets StepControl::sums(), float64 [2], to the sum of the squares, added up in
  /// double, and to how often some rank has something that is not finite; the same bits on all ranks. The host does not
  /// wait for a GPU. Collective over world.
  void sum_into(const at::Tensor& sums) const;

 private:
  SquareSum squares_;  // of the elements of the flat buffer that this rank counts
  comm::Communicator& world_;
};

}  // namespace vit_hybrid::zero
