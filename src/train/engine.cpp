// Engine::train_step(): one whole training step; and work that is done plainly first, then recorded, then replayed.
#include "src/train/engine.h"

#include <utility>

#include "parallel/comm/operation.h"
#include "parallel/pipeline/schedule.h"
#include "src/base/error.h"

namespace vit_hybrid::train {

RecordedWork::RecordedWork(std::shared_ptr<DeviceRecorder> recorder) : recorder_(std::move(recorder)) {}

void RecordedWork::run(const std::function<void()>& work) {
  if (graph_ == nullptr && was_done_ && recorder_ != nullptr) {
    graph_ = recorder_->record(work);
  }
  if (graph_ != nullptr) {
    graph_->replay();
    return;
  }
  work();
  was_done_ = true;
}

namespace {

TrainingOptions training_options(const EngineOptions& options, mesh::DeviceMesh& mesh) {
  TrainingOptions training = options;
  training.shards = zero::state_groups(mesh, options.zero_stage).num_shards();
  return training;
}

// To each gradient.
int num_contributions(const StepPlan& plan, int micro_batch_parts) {
  int64_t sum = 0;
  for (const auto& samples : plan.micro_batches) {
    sum += tensor::parts_of(std::ssize(samples), micro_batch_parts).parts();
  }
  return static_cast<int>(sum);
}

}  // namespace

Engine::Engine(EngineOptions options, mesh::DeviceMesh& mesh)
    : options_(std::move(options)),
      mesh_(mesh),
      model_(options_.model, options_.precision, mesh, training_options(options_, mesh)),
      groups_(zero::state_groups(mesh, options_.zero_stage)),
      reducer_(parameters(), groups_, options_.precision),
      norm_(parameters(), groups_.place(), mesh.tensor().rank(), mesh.world()),
      optimizer_(parameters(), groups_, mesh.tensor(), options_.precision, options_.optimizer),
      loss_scaler_(options_.loss_scale),
      control_(mesh.device()),
      decision_(options_.update_recorder),
      update_(options_.update_recorder),
      clock_(mesh.device().type()) {
  VH_ASSERT(options_.update_recorder == nullptr || mesh.size() == 1, "messages between ranks are not recorded");
  tensor::initialize(parameters().specs(), optimizer_, options_.seed);
}

StepResult Engine::train_step(StepPlan plan, data::NextBatch next_batch, double learning_rate) {
  const auto num_micro_batches = static_cast<int>(plan.micro_batches.size());
  zero::StepScalars step = optimizer_.next_step(learning_rate);
  step.loss_scale = loss_scaler_.scale();
  step.max_norm = options_.clip_norm;
  control_.set(step);
  plan.loss_scale = step.loss_scale;
  plan.loss = control_.loss();
  plan.context.sink = &reducer_;
  reducer_.begin_step(num_contributions(plan, options_.micro_batch_parts));
  {
    const comm::PhaseScope phase("forward and backward");
    model_.run(pipeline::make_schedule(options_.schedule, mesh_.pipeline().size(), num_micro_batches), std::move(plan),
               std::move(next_batch));
  }
  {
    const comm::PhaseScope phase("gradient reduction");
    const auto timer = clock_.measure(seconds_.reduce);
    reducer_.finish();
    decision_.run([this] {
      norm_.sum_into(control_.sums());
      control_.decide();
    });
  }
  {
    const comm::PhaseScope phase("optimizer");
    const auto timer = clock_.measure(seconds_.optimizer);
    update_.run([this] { optimizer_.update(control_); });
  }
  step = control_.read();  // a GPU's host waits here, and with Adam nowhere else
  optimizer_.end_step(step.is_skipped());
  loss_scaler_.update(!step.is_skipped());
  clock_.collect();
  seconds_.forward += model_.times().forward;
  seconds_.backward += model_.times().backward;
  return {step.loss, step.norm, step.loss_scale, step.is_skipped()};
}

}  // namespace vit_hybrid::train
