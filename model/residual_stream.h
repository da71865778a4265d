// ResidualStream: what goes from one sublayer of a pre-norm transformer to the next.
#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/tensor/step_context.h"
#include "src/kernels/dropout.h"

namespace vit_hybrid::model {

/// x, and the branch of the last sublayer that is still to be added to it: who reads the stream does that, which for a
/// norm is one pass over memory with its own (LayerNorm::fork()).
struct ResidualStream {
  at::Tensor x;                ///< [B, N, D]; before the embedding the image, after the head its output
  at::Tensor branch = {};      ///< a fresh [B, N, D], or undefined: nothing to add
  kernels::DropKey path = {};  ///< drops the branches of samples

  /// The sum of add_residual(), which is written over `branch`.
  at::Tensor sum(const tensor::StepContext& context) const {
    return branch.defined() ? kernels::add_residual(x, branch, path, context) : x;
  }
};

}  // namespace vit_hybrid::model
