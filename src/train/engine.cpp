// Engine: one training step, on one screen.
#include "src/train/engine.h"

#include <numeric>
#include <utility>

#include "parallel/comm/operation.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/stage_partition.h"
#include "src/base/memory_tracker.h"
#include "src/base/timer.h"

namespace vit_hybrid::train {

Engine::Engine(EngineOptions options, mesh::DeviceMesh& mesh)
    : options_(std::move(options)),
      mesh_(mesh),
      stages_(pipeline::partition_stages(model::unit_costs(options_.model), mesh.pipeline().size())),
      units_(stages_[static_cast<size_t>(mesh.pipeline().rank())]),
      buffer_(make_buffer()),
      stage_(options_.model, units_, buffer_, mesh.tensor()),
      program_(options_.model, units_, stage_, mesh.device(), options_.precision.compute),
      runner_(mesh.pipeline(), {&program_}),
      reducer_(buffer_, mesh.data(), options_.zero_stage, options_.precision),
      norm_(buffer_, options_.zero_stage, mesh.data().rank(), mesh.tensor().rank(), mesh.world()),
      optimizer_(buffer_, mesh.data(), options_.zero_stage, options_.precision, options_.optimizer) {
  tensor::initialize(buffer_, options_.seed);
}

tensor::ParameterBuffer Engine::make_buffer() const {
  auto specs = model::parameter_specs(options_.model, units_, mesh_.pipeline().rank(), mesh_.tensor().rank(),
                                      mesh_.tensor().size());
  const auto bucket = options_.bucket_bytes / static_cast<int64_t>(at::elementSize(options_.precision.gradient));
  auto layout = tensor::make_flat_layout(specs, bucket, zero::num_shards(options_.zero_stage, mesh_.data().size()));
  return {std::move(specs), std::move(layout), options_.precision.compute, options_.precision.gradient, mesh_.device()};
}

StepResult Engine::train_step(StepPlan plan, VitProgram::NextBatch next_batch, double learning_rate) {
  const auto num_micro_batches = static_cast<int>(plan.micro_batches.size());
  plan.context.sink = &reducer_;
  program_.begin(std::move(plan), std::move(next_batch));
  reducer_.begin_step(num_micro_batches);
  StepResult result;
  {
    const comm::PhaseScope phase("forward and backward");
    result.loss = runner_.run(pipeline::make_schedule(options_.schedule, mesh_.pipeline().size(), num_micro_batches));
    seconds_.forward += runner_.times().forward;
    seconds_.backward += runner_.times().backward;
  }
  zero::NormResult norm;
  {
    const comm::PhaseScope phase("gradient reduction");
    const ScopedTimer timer(seconds_.reduce);
    reducer_.finish();
    norm = norm_.compute();
  }
  const comm::PhaseScope phase("optimizer");
  const ScopedTimer timer(seconds_.optimizer);
  result.grad_norm = norm.norm;
  result.skipped = !norm.finite;
  const double clip = options_.clip_norm > 0.0 ? zero::clip_coefficient(norm.norm, options_.clip_norm) : 1.0;
  optimizer_.step({learning_rate, clip, result.skipped});
  return result;
}

void Engine::evaluate(StepPlan plan, VitProgram::NextBatch next_batch) {
  const comm::PhaseScope phase("validation");
  const auto num_micro_batches = static_cast<int>(plan.micro_batches.size());
  program_.begin(std::move(plan), std::move(next_batch));
  runner_.run(pipeline::make_forward_only(mesh_.pipeline().size(), num_micro_batches));
}

at::Tensor Engine::predict(const at::Tensor& inputs, int64_t num_samples) {
  const comm::PhaseScope phase("prediction");
  at::Tensor output;
  StepPlan plan;
  plan.micro_batches.emplace_back(static_cast<size_t>(num_samples));
  std::iota(plan.micro_batches.front().begin(), plan.micro_batches.front().end(), int64_t{0});
  plan.context.seed = options_.seed;
  plan.prediction = is_last_stage() ? &output : nullptr;
  const std::vector<int64_t> samples = plan.micro_batches.front();
  program_.begin(std::move(plan), [&] { return data::Batch{samples, inputs, {}}; });
  runner_.run(pipeline::make_forward_only(mesh_.pipeline().size(), 1));
  return output;
}

}  // namespace vit_hybrid::train
