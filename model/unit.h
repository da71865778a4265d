// Unit: one layer unit of the pipeline (patch embedding, a block, the head).
#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/tensor/step_context.h"

namespace vit_hybrid::model {

/// A layer whose parameters are views of a buffer. Its graph keeps a pointer to it and to the context.
class Unit {
 public:
  virtual ~Unit() = default;
  virtual at::Tensor forward(const at::Tensor& x, const tensor::StepContext& context) = 0;
};

}  // namespace vit_hybrid::model
