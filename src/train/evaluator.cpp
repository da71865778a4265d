// Evaluator: the pass and the sum over the ranks.
#include "src/train/evaluator.h"

#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "parallel/comm/operation.h"
#include "src/base/log.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/machine/device.h"
#include "src/train/predictions.h"

namespace vit_hybrid::train {

data::StepInput open_input(const DataConfig& data, int64_t micro_batch_size, mesh::DeviceMesh& mesh,
                           const data::Dataset& dataset, std::shared_ptr<const data::DistributedSampler> sampler,
                           int64_t num_steps, data::Parts parts, data::SamplePosition start) {
  parts.memory = batch_memory(data.pin_memory, mesh.device());
  // The threads that read normalize what stays on the host; a GPU does that itself, on half or a quarter of the bytes.
  const bool as_stored = !mesh.device().is_cpu() && dataset.stored_scaling() != nullptr;
  parts.form = as_stored ? data::ValueForm::kStored : data::ValueForm::kNormalized;
  const data::ReplicaShare share{mesh.data().rank(), mesh.data().size(), micro_batch_size};
  const auto [threads, batches] = read_ahead(data, mesh.device(), at::get_num_threads());
  return {
      dataset, std::move(sampler), mesh.tensor(), {share, num_steps, start, {parts, batches, mesh.device(), threads}}};
}

Evaluator::Evaluator(const StepConfig& config, const DataConfig& data, mesh::DeviceMesh& mesh, ModelRunner& model,
                     const data::Dataset& dataset, int64_t num_samples, at::Tensor climatology, data::Grid grid,
                     const data::IncrementTarget& increments)
    : config_(config),
      data_(data),
      mesh_(mesh),
      model_(model),
      dataset_(dataset),
      sampler_(std::make_shared<data::DistributedSampler>(data::SamplerOptions{
          num_samples, data.valid_batch_size, data::SampleOrder::kInOrder, data::LastBatch::kKeep, config.seed})),
      climatology_(std::move(climatology)),
      grid_(std::move(grid)),
      increments_(increments.to(mesh.device(), precision_policy(config.precision).master)) {}

Evaluation Evaluator::evaluate(ClassPredictions* predictions) {
  const data::EpochPlan plan = this->plan();
  EvaluationSums sums = empty_sums();
  const data::Parts parts{.input = model_.is_first_stage(),
                          .target = model_.is_last_stage(),
                          .state = model_.is_last_stage() && config_.is_forecast()};
  data::StepInput input =
      open_input(data_, config_.parallel.micro_batch_size, mesh_, dataset_, sampler_, plan.num_steps(), parts);
  const bool counts = model_.is_last_stage() && mesh_.tensor().rank() == 0;
  Progress progress(str("evaluating ", sampler_->options().num_samples, " samples"), plan.num_steps());
  for (int64_t i = 0; i < plan.num_steps(); ++i, progress.add()) {
    comm::note_work();
    StepPlan step_plan;
    step_plan.micro_batches = input.micro_batches(plan, i);
    step_plan.global_batch = static_cast<int64_t>(plan.batch(i).size());
    step_plan.context.seed = config_.seed;
    step_plan.evaluation = model_.is_last_stage() ? &sums : nullptr;
    step_plan.increments = increments_ ? &increments_ : nullptr;
    step_plan.predictions = counts ? predictions : nullptr;
    model_.evaluate(std::move(step_plan), input.open_step(plan, i));
    if (predictions != nullptr) {
      predictions->end_step(plan.batch(i), mesh_.host_world());
    }
  }
  return reduce(sums);
}

EvaluationSums Evaluator::empty_sums() const {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  if (!config_.is_forecast()) {
    return EvaluationSums::classification();
  }
  const auto shape = dataset_.target_shape();
  const at::Tensor weights = at::tensor(data::latitude_weights(grid_, shape[1]), at::kDouble);
  return EvaluationSums::forecast(shape[0], weights, climatology_);
}

Evaluation Evaluator::reduce(const EvaluationSums& sums) {
  const MemoryScope scope(MemoryClass::kCommunication);
  // Tensor ranks of a replica hold the same sums: one of them counts.
  const bool counts = model_.is_last_stage() && mesh_.tensor().rank() == 0;
  const at::Tensor total = counts ? sums.sums().clone() : at::zeros_like(sums.sums());
  mesh_.host_world().all_reduce(total, comm::ReduceOp::kSum).wait();
  return sums.finish(total);
}

}  // namespace vit_hybrid::train
