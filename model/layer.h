// Layer: what a unit of the ViT consists of; and ResidualStream, which goes from one to the next.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "parallel/tensor/linear.h"
#include "parallel/tensor/step_context.h"
#include "src/kernels/dropout.h"

namespace vit_hybrid::model {

/// What a sublayer adds to the stream; its sum over the tensor axis may be on its way.
struct Branch {
  tensor::RegionSum output = {};   ///< [B, N, D]; undefined: nothing to add
  kernels::DropKey features = {};  ///< drops features of the output

  /// Waits for it: a fresh tensor. Once.
  at::Tensor finish(const tensor::StepContext& context) && {
    const at::Tensor y = std::move(output).finish();
    return kernels::dropout(y, {0, y.size(-1)}, y.size(-1), features, context);
  }
};

/// x, and the branch of the last sublayer that is still to be added to it: who reads the stream waits for it and does
/// that, which for a norm is one pass over memory with its own (LayerNorm::fork()).
struct ResidualStream {
  at::Tensor x;  ///< [B, N, D]; before the embedding the image, after the head its output
  Branch branch = {};
  kernels::DropKey path = {};  ///< drops the branches of samples

  bool has_branch() const { return branch.output.defined(); }
  /// The sum of add_residual(), written over the branch. Once.
  at::Tensor sum(const tensor::StepContext& context) && {
    return has_branch() ? kernels::add_residual(x, std::move(branch).finish(context), path, context) : std::move(x);
  }
};

/// A layer whose parameters are views of a buffer. Its graph keeps a pointer to it and to the context.
class Layer {
 public:
  virtual ~Layer() = default;
  virtual ResidualStream forward(ResidualStream stream, const tensor::StepContext& context) = 0;
};

/// The layers of a unit, in forward's order.
using Layers = std::vector<std::unique_ptr<Layer>>;

}  // namespace vit_hybrid::model
