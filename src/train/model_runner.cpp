// ModelRunner: assembly of one rank's part, and its passes.
#include "src/train/model_runner.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "model/vit_costs.h"
#include "model/vit_parameters.h"
#include "parallel/comm/operation.h"
#include "parallel/pipeline/schedule.h"
#include "src/base/error.h"

namespace vit_hybrid::train {

namespace {

tensor::ParameterBuffer make_buffer(const model::VitOptions& options, Range units,
                                    const zero::PrecisionPolicy& precision, mesh::DeviceMesh& mesh,
                                    const std::optional<TrainingOptions>& training) {
  const TrainingOptions chosen = training.value_or(TrainingOptions());
  auto specs =
      model::parameter_specs(options, units, mesh.pipeline().rank(), mesh.tensor().rank(), mesh.tensor().size());
  const int64_t bucket = tensor::bucket_elements(chosen.bucket_bytes, precision.gradient, mesh.device().type());
  auto layout = tensor::make_flat_layout(specs, bucket, chosen.shards);
  const auto gradient = training ? std::optional(precision.gradient) : std::nullopt;
  return {std::move(specs), std::move(layout), precision.compute, gradient, mesh.device()};
}

}  // namespace

ModelRunner::ModelRunner(const model::VitOptions& options, const zero::PrecisionPolicy& precision,
                         mesh::DeviceMesh& mesh, const std::optional<TrainingOptions>& training)
    : mesh_(mesh),
      stages_(pipeline::partition_stages(model::unit_costs(options), mesh.pipeline().size())),
      units_(stages_[static_cast<size_t>(mesh.pipeline().rank())]),
      buffer_(make_buffer(options, units_, precision, mesh, training)),
      stage_(options, units_, buffer_, mesh.tensor(), training ? training->recompute : model::Recompute::kNone),
      program_(options, units_, stage_, mesh.device(), precision.compute, precision.master,
               training ? training->micro_batch_parts : 1, mesh.data().size(), training ? training->recorder : nullptr),
      runner_(mesh.pipeline(), {&program_}) {}

void ModelRunner::run(const pipeline::Schedule& schedule, StepPlan plan, data::NextBatch next_batch) {
  VH_ASSERT(buffer_.has_gradients() || !pipeline::has_backward(schedule), "a model in use has no gradients to add to");
  const double loss_scale = plan.loss_scale;
  const at::Tensor loss = plan.loss;
  program_.begin(std::move(plan), std::move(next_batch));
  runner_.run(schedule, loss_scale, loss);
}

void ModelRunner::evaluate(StepPlan plan, data::NextBatch next_batch) {
  const comm::PhaseScope phase("validation");
  const auto num_micro_batches = static_cast<int>(plan.micro_batches.size());
  run(pipeline::make_forward_only(mesh_.pipeline().size(), num_micro_batches), std::move(plan), std::move(next_batch));
}

at::Tensor ModelRunner::predict(const at::Tensor& inputs, int64_t num_samples) {
  const comm::PhaseScope phase("prediction");
  at::Tensor output;
  std::vector<int64_t> samples(static_cast<size_t>(num_samples));
  std::iota(samples.begin(), samples.end(), int64_t{0});
  StepPlan plan;
  plan.micro_batches = {samples};
  plan.prediction = is_last_stage() ? &output : nullptr;
  run(pipeline::make_forward_only(mesh_.pipeline().size(), 1), std::move(plan), [&] {
    return data::Batch{samples, inputs, {}};
  });
  return output;
}

}  // namespace vit_hybrid::train
