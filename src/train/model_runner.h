// ModelRunner: the part of the parallel model that lies on one rank, and what runs it: parameters, stage, pipeline;
// VitProgram: the stage as the pipeline sees it; StepGraph: its forward and backward as device graphs.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "data/datasets/dataset.h"
#include "data/datasets/normalization.h"
#include "data/loading/normalize.h"
#include "model/losses.h"
#include "model/vit_options.h"
#include "model/vit_stage.h"
#include "parallel/mesh/device_mesh.h"
#include "parallel/pipeline/runner.h"
#include "parallel/tensor/parameter_buffer.h"
#include "parallel/tensor/step_context.h"
#include "parallel/zero/step_control.h"
#include "src/base/device/device_graph.h"
#include "src/report/scores.h"

namespace vit_hybrid::train {

// StepGraph: forward and backward of a micro-batch recorded as two device graphs, so that the host starts two things
// instead of hundreds.
//
// It stands in VitProgram::forward() in the place of stage and loss: runner, reducer and phases do not know of it.
// Inputs, target, loss and the loss's gradient have fixed addresses; which parameters became ready is noted when
// backward is recorded, and told to the reducer after each replay. Sums over the tensor axis are part of the record
// (comm::RecordedOperations). What a record would freeze rules it out: keys of random draws, messages between stages, a
// reduction that starts inside backward (src/machine/device). Norm with decision, and the update, are records of their
// own (RecordedWork) by a recorder of their own: a new size of micro-batch gives up the graphs of the others, and
// memory that graphs of one recorder share comes back only with the last of them.

/// Micro-batches with the same key do the same work on the device.
struct MicroBatchKind {
  int64_t samples = 0;
  int64_t global_batch = 0;  ///< of which the loss is a part

  auto operator<=>(const MicroBatchKind&) const = default;
};

/// For all layers of a model, of which a rank may have its tensor part, in training without random draws: there the
/// work of a micro-batch is a function of its kind, of its input and target, and of what stands in parameters and
/// gradients. Each backward comes before the next forward.
class StepGraph {
 public:
  /// The contexts of a micro-batch's parts.
  using Parts = std::span<const tensor::StepContext>;
  /// The scalar loss of a micro-batch, with a graph whose backward adds to the gradients and tells the parts' sink.
  using Forward = std::function<at::Tensor(const at::Tensor& input, const at::Tensor& target, Parts parts)>;

  /// `replica`, which outlives it: the ranks that take the same micro-batches. They record together or not at all,
  /// since one may not start from a graph what another starts from its host.
  StepGraph(std::shared_ptr<DeviceRecorder> recorder, const comm::MpiGroup& replica);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  /// What forward(input, target, parts) gives and, in its backward, does: the same bits. The first micro-batch of a
  /// kind is computed so; the next one is recorded, and it and all later ones are replayed from copies of `input`,
  /// which requires grad and gets none, and `target`. Where a rank cannot record it, all are computed as they come.
  /// `forward` outlives this object. Collective over the replica.
  at::Tensor run(const MicroBatchKind& kind, const at::Tensor& input, const at::Tensor& target, Parts parts,
                 const Forward& forward);

 private:
  class Graph;
  class Recorded;

  const comm::MpiGroup& replica_;
  std::shared_ptr<DeviceRecorder> recorder_;                   // null: nothing is recorded any more
  std::map<MicroBatchKind, std::unique_ptr<Recorded>> kinds_;  // null: seen, and not recorded
};

class ClassPredictions;

/// What a VitProgram needs to know of one pass over the micro-batches of a replica.
struct StepPlan {
  std::vector<std::vector<int64_t>> micro_batches;    ///< global sample numbers of each, none empty
  int64_t global_batch = 1;                           ///< what the losses are divided by
  double loss_scale = 1.0;                            ///< what backward of a loss starts from
  at::Tensor loss;                                    ///< to which the losses are added: see PipelineRunner::run()
  tensor::StepContext context;                        ///< seed, step, mode and sink; the rest is set by micro-batch
  EvaluationSums* evaluation = nullptr;               ///< last stage in evaluation: where predictions are counted
  const data::IncrementTarget* increments = nullptr;  ///< what fields are trained on, on the device; null: the states
  /// Last stage in evaluation of a classifier, on one rank of a replica: what is predicted of each sample; may be null.
  ClassPredictions* predictions = nullptr;
  /// Last stage: where the output of the only micro-batch is put, which then has no target and no loss.
  at::Tensor* prediction = nullptr;
};

/// Joins a VitStage, the loss and the data. The first stage takes inputs from `next_batch`, the last one targets; both
/// are called once a micro-batch, in order (a schedule runs its forwards in order).
class VitProgram final : public pipeline::StageProgram {
 public:
  /// Inputs are cast to `compute_type`, targets and predictions that leave the program to `wide_type`. Micro-batches
  /// run in at most `micro_batch_parts` parts (tensor::parts_of()). With a `recorder`, which is for what StepGraph is
  /// for, they are recorded and replayed in training; of several replicas only those between the first one of a step,
  /// which awaits parameters on their way, and the last one, which starts reductions.
  VitProgram(const model::VitOptions& options, Range units, model::VitStage& stage, mesh::DeviceMesh& mesh,
             at::ScalarType compute_type, at::ScalarType wide_type, int micro_batch_parts,
             std::shared_ptr<DeviceRecorder> recorder);

  bool is_first() const { return units_.begin == 0; }
  bool is_last() const { return units_.end == options_.num_units(); }

  /// What values of fields count in the loss from now on: before the first pass that is recorded.
  void set_loss_weights(const model::FieldWeights& weights);

  /// Starts a pass; `next_batch` must give the micro-batches of the plan in order (not called on middle stages).
  void begin(StepPlan plan, data::NextBatch next_batch);

  void fetch(int micro_batch) override;
  at::Tensor input(int micro_batch) override;
  std::vector<int64_t> input_shape(int micro_batch) const override;
  at::ScalarType activation_type() const override { return compute_type_; }
  at::Tensor forward(int micro_batch, const at::Tensor& input) override;
  void release(int micro_batch) override;

 private:
  bool is_recorded(int micro_batch) const;
  data::Batch& batch(int micro_batch);
  at::Tensor target(const data::Batch& batch);
  /// What the network is to give: the target, or the increment to it.
  at::Tensor aim(const data::Batch& batch);
  at::Tensor states(const data::Batch& batch);
  at::Tensor loss(const at::Tensor& prediction, const at::Tensor& target) const;
  void count(double loss_sum, const at::Tensor& prediction, const data::Batch& batch);
  /// A part of a batch on the device: numbers normalized, where there is a scaling, and of this type, classes as they
  /// are. `normalizer` keeps the scaling.
  at::Tensor on_device(const at::Tensor& part, const data::StoredScaling* scaling, data::BatchNormalizer& normalizer,
                       at::ScalarType number_type);

  model::VitOptions options_;
  Range units_;
  model::VitStage& stage_;
  at::Device device_;
  at::ScalarType compute_type_;
  at::ScalarType wide_type_;
  StepPlan plan_;
  data::NextBatch next_batch_;
  int next_micro_batch_ = 0;
  std::map<int, data::Batch> batches_;
  data::BatchNormalizer input_normalizer_;
  data::BatchNormalizer target_normalizer_;
  model::FieldWeights loss_weights_;  // on the device
  int micro_batch_parts_;
  int num_replicas_;
  std::vector<std::vector<tensor::StepContext>> contexts_;  // by micro-batch, of its parts
  StepGraph::Forward whole_forward_;                        // of the whole model
  std::unique_ptr<StepGraph> step_graph_;                   // null without a recorder
};

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

  /// What values of fields count in the loss, of host tensors, undefined: 1 (loss_weights()). Before the first pass.
  void set_loss_weights(const model::FieldWeights& weights) { program_.set_loss_weights(weights); }

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
