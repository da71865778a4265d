// Whether the steps of a run are recorded as CUDA graphs, and why not.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "src/config/run_config.h"

namespace vit_hybrid::train {

/// What of a training's steps is recorded on its device and started as a whole.
struct StepRecording {
  bool micro_batches = false;  ///< see StepGraph
  bool updates = false;        ///< the norm, and an update that the device's numbers alone steer
  std::string text;            ///< how steps are started on a GPU, and why, for the start of a run
};

/// As --cuda-graph (auto: where it can) has it. Error(kUsage) where `on` is given and it cannot. `config` is resolved.
/// Pure.
StepRecording step_recording(const RunConfig& config, c10::Device device);

}  // namespace vit_hybrid::train
