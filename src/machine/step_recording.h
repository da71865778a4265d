// Whether the steps of a run are recorded as CUDA graphs, and why not.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>

#include "src/base/device/device_graph.h"
#include "src/config/run_config.h"

namespace vit_hybrid::train {

/// Whether --cuda-graph (auto: where it can) has the micro-batches of a training recorded on this device: see
/// StepGraph. Error(kUsage) where `on` is given and they cannot be. `config` is resolved. Pure.
bool records_steps(const RunConfig& config, c10::Device device);

/// The recorder of such a run's micro-batches; null of another.
std::shared_ptr<DeviceRecorder> make_step_recorder(const RunConfig& config, c10::Device device);

/// The recorder of such a run's norms and updates; null of another, and of optimizers that do not update all at once.
std::shared_ptr<DeviceRecorder> make_update_recorder(const RunConfig& config, c10::Device device);

/// For the start of a run: how its steps are started on a GPU, and why. Pure.
std::string step_recording_text(const RunConfig& config, c10::Device device);

}  // namespace vit_hybrid::train
