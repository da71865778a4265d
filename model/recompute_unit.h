// RecomputedUnit: a layer unit of which the graph keeps the input only.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>

#include "model/unit.h"

namespace vit_hybrid::model {

/// Runs another unit, and again when backward reaches it (T. Chen et al., "Training Deep Nets with Sublinear Memory
/// Cost", 2016). Of one micro-batch the graph keeps the unit's input; the activations of one unit at a time exist.
/// The second forward takes the same kernels, draws the same keyed masks and sums over the tensor axis again, on all
/// tensor ranks in the order of backward. Gradients are added once, by the second forward's graph.
class RecomputedUnit : public Unit {
 public:
  explicit RecomputedUnit(std::unique_ptr<Unit> unit) : unit_(std::move(unit)) {}
  /// As the unit's forward; its backward has the unit's communication of forward and of backward.
  at::Tensor forward(const at::Tensor& x, const tensor::StepContext& context) override;

 private:
  std::unique_ptr<Unit> unit_;
};

}  // namespace vit_hybrid::model
