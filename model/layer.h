// Layer: what a unit of the ViT consists of.
#pragma once

#include <memory>
#include <vector>

#include "model/residual_stream.h"
#include "parallel/tensor/step_context.h"

namespace vit_hybrid::model {

/// A layer whose parameters are views of a buffer. Its graph keeps a pointer to it and to the context.
class Layer {
 public:
  virtual ~Layer() = default;
  virtual ResidualStream forward(ResidualStream stream, const tensor::StepContext& context) = 0;
};

/// The layers of a unit, in forward's order.
using Layers = std::vector<std::unique_ptr<Layer>>;

}  // namespace vit_hybrid::model
