// ModelRunner: the part of the parallel model that lies on one rank, and what runs it: parameters, stage, pipeline.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "model/vit_options.h"
#include "model/vit_stage.h"
#include "parallel/mesh/device_mesh.h"
#include "parallel/pipeline/runner.h"
#include "parallel/tensor/parameter_buffer.h"
#include "parallel/zero/precision_policy.h"
#include "src/train/vit_program.h"

namespace vit_hybrid::train {

/// What is settled for a training: how gradients lie, and how a pass is done.
struct TrainingOptions {
  int64_t bucket_bytes = 0;  ///< of gradients; 0: 4 MiB on CPUs, 25 MiB on GPUs, where an operation costs a launch
  int shards = 1;            ///< parts that every bucket divides into
  model::Recompute recompute = model::Recompute::kNone;
  int micro_batch_parts = 1;                 ///< which hide sums over the tensor axis: VitStage::forward()
  std::shared_ptr<DeviceRecorder> recorder;  ///< of micro-batches (StepGraph); null: none is recorded
};

/// The only forward path: training, validation and the use of a trained model all go through run(). Without a
/// TrainingOptions it holds parameters alone: no gradients, and the passes have no backward. Constructor and passes are
/// collective over the mesh.
class ModelRunner {
 public:
  /// Parameters are zero until they are initialised or loaded.
  ModelRunner(const model::VitOptions& options, const zero::PrecisionPolicy& precision, mesh::DeviceMesh& mesh,
              const std::optional<TrainingOptions>& training);
  ModelRunner(const ModelRunner&) = delete;
  ModelRunner& operator=(const ModelRunner&) = delete;

  /// One pass over the micro-batches of this rank's replica in the order of `schedule`. A schedule with backwards adds
  /// gradients.
  void run(const pipeline::Schedule& schedule, StepPlan plan, data::NextBatch next_batch);
  /// Forward only; predictions are counted in plan.evaluation on the last stage.
  void evaluate(StepPlan plan, data::NextBatch next_batch);
  /// Forward of `num_samples` inputs without targets, on the first stage [num_samples, C, H, W] in `inputs`. The output
  /// on the last stage, an undefined tensor on the others.
  at::Tensor predict(const at::Tensor& inputs, int64_t num_samples);

  bool is_first_stage() const { return program_.is_first(); }
  bool is_last_stage() const { return program_.is_last(); }
  /// Layer units of every stage.
  const std::vector<Range>& stages() const { return stages_; }
  tensor::ParameterBuffer& parameters() { return buffer_; }
  /// Of the last pass: see PipelineRunner.
  const pipeline::RunTimes& times() { return runner_.times(); }

 private:
  mesh::DeviceMesh& mesh_;
  std::vector<Range> stages_;
  Range units_;
  tensor::ParameterBuffer buffer_;
  model::VitStage stage_;
  VitProgram program_;
  pipeline::PipelineRunner runner_;
};

}  // namespace vit_hybrid::train
