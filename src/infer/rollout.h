// Rollout: a network on its own output, one lead time after the other, in any layout of one replica.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/mesh/device_mesh.h"
#include "src/train/model_runner.h"

namespace vit_hybrid::train {

/// World rank 0, on the first stage, has the states; a prediction goes from the last stage back to the first over the
/// pipeline.
class Rollout {
 public:
  /// The state to start from: [C, H, W], normalised, host; looked at on world rank 0 only. dp is 1, the network gives
  /// as many channels as it takes (`shape` on all ranks). Collective over the mesh.
  Rollout(ModelRunner& model, mesh::DeviceMesh& mesh, const std::vector<int64_t>& shape, const at::Tensor& start);

  /// One lead time further: the new state [C, H, W], normalised, float32 on the host, on world rank 0; undefined on the
  /// others. Between lead times it is kept in the type of predictions. Collective over the mesh.
  at::Tensor advance();

 private:
  ModelRunner& model_;
  mesh::DeviceMesh& mesh_;
  at::Tensor state_;  // [1, C, H, W] on the device; first stage only
};

}  // namespace vit_hybrid::train
