// What a recorded step cannot have.
#include "src/machine/step_recording.h"

#include "parallel/zero/rules/update_rule.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/config/run_config.h"

namespace vit_hybrid::train {

namespace {

// Nothing where the micro-batches can be recorded.
std::optional<std::string> obstacle(const RunConfig& config, c10::Device device) {
  const ParallelConfig& parallel = config.parallel;
  const model::VitOptions& model = config.model;
  if (!device.is_cuda()) {
    return "the device is the " + std::string(device.is_cpu() ? "CPU" : device.str());
  }
  if (parallel.dp * parallel.tp * parallel.pp > 1) {
    return str("the layout is ", parallel.dp, " x ", parallel.tp, " x ", parallel.pp,
               ", and what ranks send each other in a pass is not recorded");
  }
  if (model.dropout > 0.0 || model.attention_dropout > 0.0 || model.drop_path > 0.0) {
    return "the model drops at random, by keys of the step that a record would repeat";
  }
  if (parallel.schedule == "gpipe" && config.num_micro_batches() > 1) {
    return str("with --schedule gpipe the activations of ", config.num_micro_batches(),
               " micro-batches are held at once, and a record has room for one");
  }
  return std::nullopt;
}

// The device's numbers alone steer such an update; the host reads those of another before each.
bool updates_at_once(const RunConfig& config, c10::Device device) {
  return zero::make_update_rule(optimizer_options(config.optimizer), device.type())->updates_at_once();
}

}  // namespace

bool records_steps(const RunConfig& config, c10::Device device) {
  if (config.cuda_graph == CudaGraph::kOff) {
    return false;
  }
  const auto reason = obstacle(config, device);
  if (reason && config.cuda_graph == CudaGraph::kOn) {
    throw Error(ErrorClass::kUsage, "--cuda-graph on: " + *reason,
                "give --cuda-graph auto, which records where it can, or off");
  }
  return !reason;
}

std::shared_ptr<DeviceRecorder> make_step_recorder(const RunConfig& config, c10::Device device) {
  return records_steps(config, device) ? make_device_recorder() : nullptr;
}

std::shared_ptr<DeviceRecorder> make_update_recorder(const RunConfig& config, c10::Device device) {
  return records_steps(config, device) && updates_at_once(config, device) ? make_device_recorder() : nullptr;
}

std::string step_recording_text(const RunConfig& config, c10::Device device) {
  if (!records_steps(config, device)) {
    return "started kernel by kernel: " +
           (config.cuda_graph == CudaGraph::kOff ? std::string("--cuda-graph off") : *obstacle(config, device));
  }
  if (updates_at_once(config, device)) {
    return "CUDA graphs: forward, backward, norm and update are recorded once and started as a whole";
  }
  return str("CUDA graphs: forward and backward are recorded once and started as a whole; norm and update are started ",
             "kernel by kernel: the host reads the norm before it starts an update of --optimizer ",
             zero::optimizer_name(optimizer_options(config.optimizer).kind));
}

}  // namespace vit_hybrid::train
