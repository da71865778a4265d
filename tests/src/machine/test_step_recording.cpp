// Which runs have their micro-batches recorded, and what is said of the others.
#include <doctest/doctest.h>

#include "src/base/error.h"
#include "src/machine/device.h"
#include "tests/support/contains.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;
using testing::contains;

namespace {

const c10::Device kGpu(c10::kCUDA, 0);

RunConfig one_rank() {
  RunConfig config;
  config.parallel.dp = 1;
  return config;
}

std::string recording_refusal(RunConfig config, c10::Device device) {
  config.cuda_graph = CudaGraph::kOn;
  try {
    static_cast<void>(step_recording(config, device));
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::kUsage);
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("step recording: one rank on a GPU, unless it is switched off") {
  RunConfig config = one_rank();
  for (const auto choice : {CudaGraph::kAuto, CudaGraph::kOn}) {
    config.cuda_graph = choice;
    CHECK(step_recording(config, kGpu).micro_batches);
    CHECK(contains(step_recording(config, kGpu).text, "CUDA graphs: forward, backward, norm and update are recorded"));
  }
  config.cuda_graph = CudaGraph::kOff;
  CHECK_FALSE(step_recording(config, kGpu).micro_batches);
  CHECK(step_recording(config, kGpu).text == "started kernel by kernel: --cuda-graph off");
}

TEST_CASE("step recording: norm and update are recorded with optimizers that update all at once") {
  RunConfig config = one_rank();
  for (const auto kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    config.optimizer.kind = kind;
    CHECK(step_recording(config, kGpu).updates);
    CHECK(contains(step_recording(config, kGpu).text, "norm and update are recorded once"));
  }
  for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kLamb, OptimizerKind::kLars}) {
    config.optimizer.kind = kind;
    CHECK(step_recording(config, kGpu).micro_batches);
    CHECK(contains(step_recording(config, kGpu).text, "CUDA graphs: forward and backward are recorded once"));
    CHECK(contains(step_recording(config, kGpu).text, "norm and update are started kernel by kernel: the host reads"));
    CHECK_FALSE(step_recording(config, kGpu).updates);
  }
}

TEST_CASE("step recording: of several replicas, what lies between the messages of a step") {
  RunConfig config = one_rank();
  config.parallel.dp = 2;
  config.parallel.micro_batch_size = 4;
  config.global_batch_size = 2 * 4 * 5;
  const StepRecording recording = step_recording(config, kGpu);
  CHECK(recording.micro_batches);
  CHECK_FALSE(recording.updates);
  CHECK(contains(recording.text, "CUDA graphs: forward and backward of 3 of 5 micro-batches"));
  config.global_batch_size = 2 * 4 * 2;
  CHECK(
      contains(recording_refusal(config, kGpu), "--cuda-graph on: with --dp 2 the first micro-batch of a step waits"));
  CHECK_FALSE(step_recording(config, kGpu).micro_batches);
}

TEST_CASE("step recording: on tensor ranks forward and backward, with the sums over them") {
  RunConfig config = one_rank();
  config.parallel.tp = 2;
  const StepRecording recording = step_recording(config, kGpu);
  CHECK(recording.micro_batches);
  CHECK_FALSE(recording.updates);
  CHECK(contains(recording.text, "CUDA graphs: forward and backward are recorded once, with their sums over 2 tensor"));
  config.parallel.tp_overlap = true;
  CHECK(step_recording(config, kGpu).micro_batches);
  config.parallel.dp = 2;
  config.parallel.micro_batch_size = 4;
  config.global_batch_size = 2 * 4 * 5;
  CHECK(contains(step_recording(config, kGpu).text, "CUDA graphs: forward and backward of 3 of 5 micro-batches"));
  config.global_batch_size = 2 * 4 * 2;
  CHECK_FALSE(step_recording(config, kGpu).micro_batches);
}

TEST_CASE("step recording: what stands against it is named, and refused where it is asked for") {
  RunConfig layout = one_rank();
  layout.parallel.pp = 2;
  RunConfig random = one_rank();
  random.model.drop_path = 0.1;
  RunConfig gpipe = one_rank();
  gpipe.parallel.schedule = "gpipe";
  gpipe.parallel.micro_batch_size = 4;
  gpipe.global_batch_size = 12;
  CHECK(recording_refusal(one_rank(), c10::Device(c10::kCPU)) == "--cuda-graph on: the device is the CPU");
  CHECK(contains(recording_refusal(layout, kGpu), "--cuda-graph on: with --pp 2 the stages send"));
  CHECK(contains(recording_refusal(random, kGpu), "drops at random"));
  CHECK(contains(recording_refusal(gpipe, kGpu), "the activations of 3 micro-batches"));
  for (const RunConfig& config : {layout, random, gpipe}) {
    CHECK_FALSE(step_recording(config, kGpu).micro_batches);
    CHECK(contains(step_recording(config, kGpu).text, "started kernel by kernel: "));
  }
  gpipe.global_batch_size = 4;
  CHECK(step_recording(gpipe, kGpu).micro_batches);
}
