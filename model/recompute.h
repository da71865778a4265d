// Recomputation of activations in backward (activation checkpointing): of a whole layer unit, and of one value.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>

#include "model/layer.h"
#include "parallel/tensor/step_context.h"

namespace vit_hybrid::model {

/// kSelective: the input of attention (qkv) and of GELU; kFull: all of a block but its input (V. Korthikanti et al.,
/// "Reducing Activation Recomputation in Large Transformer Models", MLSys 2023). No bit of a result depends on it.
enum class Recompute { kNone, kSelective, kFull };

/// Runs the layers of a unit, and again when backward reaches it (T. Chen et al., "Training Deep Nets with Sublinear
/// Memory Cost", 2016). Of one micro-batch the graph keeps the unit's input, which is one tensor: sums are made at its
/// borders. The activations of one unit at a time exist. The second forward takes the same kernels, draws the same
/// keyed masks and sums over the tensor axis again, on all tensor ranks in the order of backward. Gradients are added
/// once, by the second forward's graph.
class RecomputedUnit : public Layer {
 public:
  explicit RecomputedUnit(Layers layers) : layers_(std::move(layers)) {}
  /// As the forward of the layers; its backward has the unit's communication of forward and of backward.
  ResidualStream forward(ResidualStream stream, const tensor::StepContext& context) override;

 private:
  Layers layers_;
};

/// `result`, which was computed from `value` by a node that keeps `value` (whole, not a view). When it is recorded, the
/// memory of `value` is freed, for every tensor that shares it, and nobody may read it; when backward reaches the
/// result, and before it reaches that node, it is filled again with what `compute` returns, which must be the same
/// values. `compute` runs without grad mode, and must not communicate.
at::Tensor recompute_in_backward(const at::Tensor& value, const at::Tensor& result,
                                 std::function<at::Tensor()> compute);

}  // namespace vit_hybrid::model
