// Engine: one training step, on one screen.
#include "src/train/engine.h"

#include <utility>

#include "parallel/comm/operation.h"
#include "parallel/pipeline/schedule.h"

namespace vit_hybrid::train {

namespace {

TrainingOptions training_options(const EngineOptions& options, mesh::DeviceMesh& mesh) {
  return {options.bucket_bytes, zero::num_shards(options.zero_stage, mesh.data().size()), options.recompute,
          options.recorder};
}

}  // namespace

Engine::Engine(EngineOptions options, mesh::DeviceMesh& mesh)
    : options_(std::move(options)),
      mesh_(mesh),
      model_(options_.model, options_.precision, mesh, training_options(options_, mesh)),
      reducer_(parameters(), mesh.data(), options_.zero_stage, options_.precision),
      norm_(parameters(), options_.zero_stage, mesh.data().rank(), mesh.tensor().rank(), mesh.world()),
      optimizer_(parameters(), mesh.data(), mesh.tensor(), options_.zero_stage, options_.precision, options_.optimizer),
      loss_scaler_(options_.loss_scale),
      clock_(mesh.device().type()) {
  tensor::initialize(parameters().specs(), optimizer_, options_.seed);
}

StepResult Engine::train_step(StepPlan plan, VitProgram::NextBatch next_batch, double learning_rate) {
  const auto num_micro_batches = static_cast<int>(plan.micro_batches.size());
  const double loss_scale = loss_scaler_.scale();
  plan.loss_scale = loss_scale;
  plan.context.sink = &reducer_;
  reducer_.begin_step(num_micro_batches);
  StepResult result;
  result.loss_scale = loss_scale;
  {
    const comm::PhaseScope phase("forward and backward");
    result.loss = model_.run(pipeline::make_schedule(options_.schedule, mesh_.pipeline().size(), num_micro_batches),
                             std::move(plan), std::move(next_batch));
  }
  zero::NormResult norm;
  {
    const comm::PhaseScope phase("gradient reduction");
    const auto timer = clock_.measure(seconds_.reduce);
    reducer_.finish();
    norm = norm_.compute();
  }
  result.grad_norm = norm.norm / loss_scale;
  result.skipped = !norm.finite;
  const double clip = options_.clip_norm > 0.0 ? zero::clip_coefficient(result.grad_norm, options_.clip_norm) : 1.0;
  {
    const comm::PhaseScope phase("optimizer");
    const auto timer = clock_.measure(seconds_.optimizer);
    optimizer_.step({learning_rate, clip / loss_scale, result.skipped});
  }
  loss_scaler_.update(norm.finite);
  clock_.collect();
  seconds_.forward += model_.times().forward;
  seconds_.backward += model_.times().backward;
  return result;
}

}  // namespace vit_hybrid::train
