// StateSnapshot: host memory for one copy of what a rank writes into checkpoints.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/mesh/device_mesh.h"
#include "src/train/engine.h"
#include "src/train/saving/save.h"

namespace vit_hybrid::train {

/// The memory is made and touched once, before training: a save then waits for a copy alone, not for fresh pages.
class StateSnapshot {
 public:
  /// `engine` outlives it. Page-locked memory where the state is on a GPU.
  StateSnapshot(Engine& engine, const mesh::DeviceMesh& mesh);

  /// Copies the state as it is now over what was taken before.
  void take();
  /// What was taken last.
  const std::vector<StateBox>& boxes() const { return copies_; }

 private:
  std::vector<StateBox> state_;
  std::vector<StateBox> copies_;
};

}  // namespace vit_hybrid::train
