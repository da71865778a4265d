// GradientNorm: the L2 norm of the whole model's gradient, every parameter counted once.
#pragma once

#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/tensor/parameter_buffer.h"
#include "parallel/zero/sharding.h"
#include "src/base/partition.h"

namespace vit_hybrid::zero {

/// Of one step; the same bits on all ranks of the world.
struct NormResult {
  double norm = 0;
  bool finite = true;  ///< false if any rank has a gradient that is not finite: then all ranks skip the step
};

/// Counts each element on one rank of the world: on the data rank that owns it (on data rank 0 where all own it), and,
/// if it is replicated over the tensor axis, on tensor rank 0.
class GradientNorm {
 public:
  GradientNorm(const tensor::ParameterBuffer& buffer, ZeroStage stage, int data_rank, int tensor_rank,
               comm::Communicator& world);

  /// After GradientReducer::finish(). Squares are added up in double. Collective over world.
  NormResult compute() const;

 private:
  const tensor::ParameterBuffer& buffer_;
  std::vector<Range> counted_;  // elements of the flat buffer that this rank counts
  comm::Communicator& world_;
};

/// What gradients are multiplied with: min(1, max_norm / (norm + 1e-6)), as torch's clip_grad_norm_.
double clip_coefficient(double norm, double max_norm);

}  // namespace vit_hybrid::zero
