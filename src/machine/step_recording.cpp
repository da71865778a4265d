// What a recorded step cannot have.
#include "src/machine/step_recording.h"

#include "parallel/zero/rules/update_rule.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

// Of several replicas: VitProgram.
constexpr int kMessagingMicroBatches = 2;

// Nothing where the micro-batches can be recorded.
std::optional<std::string> obstacle(const RunConfig& config, c10::Device device) {
  const ParallelConfig& parallel = config.parallel;
  const model::VitOptions& model = config.model;
  if (!device.is_cuda()) {
    return "the device is the " + std::string(device.is_cpu() ? "CPU" : device.str());
  }
  if (parallel.tp * parallel.pp > 1) {
    return str("with --tp ", parallel.tp, " --pp ", parallel.pp,
               " ranks send each other messages in every pass, which are not recorded");
  }
  if (parallel.dp > 1 && config.num_micro_batches() <= kMessagingMicroBatches) {
    return str("with --dp ", parallel.dp, " the first micro-batch of a step waits for parameters, the last one sends ",
               "gradients, and messages are not recorded: there is none between the two");
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

}  // namespace

StepRecording step_recording(const RunConfig& config, c10::Device device) {
  if (config.cuda_graph == CudaGraph::kOff) {
    return {false, false, "started kernel by kernel: --cuda-graph off"};
  }
  if (const auto reason = obstacle(config, device)) {
    if (config.cuda_graph == CudaGraph::kOn) {
      throw Error(ErrorClass::kUsage, "--cuda-graph on: " + *reason,
                  "give --cuda-graph auto, which records where it can, or off");
    }
    return {false, false, "started kernel by kernel: " + *reason};
  }
  if (config.parallel.dp > 1) {
    return {
        true, false,
        str("CUDA graphs: forward and backward of ", config.num_micro_batches() - kMessagingMicroBatches, " of ",
            config.num_micro_batches(),
            " micro-batches are recorded once and started as a whole; the first and "
            "the last one, norm and update are started kernel by kernel: their ranks wait for each other's messages")};
  }
  if (zero::make_update_rule(config.optimizer, device.type())->updates_at_once()) {
    return {true, true, "CUDA graphs: forward, backward, norm and update are recorded once and started as a whole"};
  }
  return {true, false,
          str("CUDA graphs: forward and backward are recorded once and started as a whole; norm and update are started "
              "kernel by kernel: the host reads the norm before it starts an update of --optimizer ",
              zero::optimizer_name(config.optimizer.kind))};
}

}  // namespace vit_hybrid::train
