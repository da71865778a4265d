// Engine: a training step: gradients, their reduction and norm, and the update.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "model/vit_options.h"
#include "parallel/mesh/device_mesh.h"
#include "parallel/zero/gradient_reducer.h"
#include "parallel/zero/norms.h"
#include "parallel/zero/sharding.h"
#include "parallel/zero/step_control.h"
#include "parallel/zero/zero1_optimizer.h"
#include "src/base/device/device_graph.h"
#include "src/base/timer.h"
#include "src/train/model_runner.h"

namespace vit_hybrid::train {

/// The same work each time but for the numbers in the tensors that it reads.
class RecordedWork {
 public:
  /// `recorder`: null where it is never recorded.
  explicit RecordedWork(std::shared_ptr<DeviceRecorder> recorder);
  RecordedWork(const RecordedWork&) = delete;
  RecordedWork& operator=(const RecordedWork&) = delete;

  /// Does `work`: the first time as it is, the second time recorded, and from then on what was recorded: of `work` then
  /// the device's part alone. As it is each time where it cannot be recorded.
  void run(const std::function<void()>& work);

 private:
  std::shared_ptr<DeviceRecorder> recorder_;
  std::unique_ptr<DeviceGraph> graph_;  // null: not recorded
  bool was_done_ = false;
};

/// `shards` of it are the Engine's to say.
struct EngineOptions : TrainingOptions {
  model::VitOptions model;
  zero::PrecisionPolicy precision;
  zero::LossScaleOptions loss_scale;
  zero::OptimizerOptions optimizer;
  zero::ZeroStage zero_stage = zero::ZeroStage::kOptimizerState;  ///< over the parts of the mesh's data axis
  std::string schedule = "1f1b";
  double clip_norm = 0.0;  ///< 0: no clipping
  uint64_t seed = 1;
  /// Of norm and update, on one rank with an optimizer that updates all at once; null: they are not recorded. Another
  /// one than that of micro-batches, whose graphs are given up when their memory is needed.
  std::shared_ptr<DeviceRecorder> update_recorder;
};

/// What one optimizer step gave; the same on all ranks but for `loss`.
struct StepResult {
  double loss = 0.0;        ///< of this replica's samples over the global batch; 0 but on the last stage
  double grad_norm = 0.0;   ///< before clipping, without the loss scale
  double loss_scale = 1.0;  ///< of this step
  bool skipped = false;     ///< the gradient was not finite: no rank changed its parameters
};

/// Seconds of this rank's device by phase since the last reset.
struct PhaseSeconds {
  double forward = 0.0;
  double backward = 0.0;
  double reduce = 0.0;  ///< waiting for gradients after backward, and the norm
  double optimizer = 0.0;
};

/// Assembles one rank. Knows nothing of data sets, epochs and files. Constructor and steps are collective over the
/// mesh.
class Engine {
 public:
  Engine(EngineOptions options, mesh::DeviceMesh& mesh);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// One training step on the micro-batches of this rank's replica: docs/architecture.md, "One training step". The sink
  /// of `plan` is set here. Returns when the device has done it, except that parameters may still be on their way from
  /// the ranks that updated them (ParameterBuffer::await()).
  StepResult train_step(StepPlan plan, data::NextBatch next_batch, double learning_rate);

  /// What is trained, for passes without training too.
  ModelRunner& model() { return model_; }
  const ModelRunner& model() const { return model_; }
  tensor::ParameterBuffer& parameters() { return model_.parameters(); }
  zero::Zero1Optimizer& optimizer() { return optimizer_; }
  zero::LossScaler& loss_scaler() { return loss_scaler_; }
  const zero::LossScaler& loss_scaler() const { return loss_scaler_; }
  /// With the scalars of the last step.
  const zero::StepControl& control() const { return control_; }
  const PhaseSeconds& seconds() const { return seconds_; }
  void reset_seconds() { seconds_ = {}; }

 private:
  EngineOptions options_;
  mesh::DeviceMesh& mesh_;
  ModelRunner model_;
  zero::StateGroups groups_;
  zero::GradientReducer reducer_;
  zero::GradientNorm norm_;
  zero::Zero1Optimizer optimizer_;
  zero::LossScaler loss_scaler_;
  zero::StepControl control_;
  RecordedWork decision_;
  RecordedWork update_;
  PhaseSeconds seconds_;
  PhaseClock clock_;
};

}  // namespace vit_hybrid::train
