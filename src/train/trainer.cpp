// Trainer: the loop.
#include "src/train/trainer.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "data/grid_weights.h"
#include "parallel/comm/operation.h"
#include "parallel/comm/statistics.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/base/timer.h"

namespace vit_hybrid::train {

namespace {

constexpr int64_t kMostSkippedInARow = 10;

double blocked_seconds() {
  double sum = 0.0;
  for (const auto& axis : comm::statistics()) {
    sum += axis.blocked_seconds;
  }
  return sum;
}

EngineOptions engine_options(const RunConfig& config) {
  EngineOptions options;
  options.model = config.model;
  options.precision = zero::make_precision_policy(config.precision == Precision::kFp64 ? "fp64" : "fp32");
  options.optimizer = adam_options(config.optimizer);
  options.zero_stage = config.parallel.zero == 0 ? zero::ZeroStage::kReplicated : zero::ZeroStage::kOptimizerState;
  options.schedule = config.parallel.schedule;
  options.clip_norm = config.optimizer.clip_norm;
  options.bucket_bytes = static_cast<int64_t>(config.parallel.bucket_mb * (1 << 20));
  options.seed = config.seed;
  return options;
}

std::shared_ptr<const data::DistributedSampler> train_sampler(const RunConfig& config, const DataSource& data) {
  return std::make_shared<data::DistributedSampler>(
      data::SamplerOptions{data.num_train_samples, config.global_batch_size, data::SampleOrder::kShuffled,
                           config.data.drop_last ? data::LastBatch::kDrop : data::LastBatch::kKeep, config.seed});
}

std::shared_ptr<const data::DistributedSampler> valid_sampler(const RunConfig& config, const DataSource& data) {
  if (data.valid == nullptr) {
    return nullptr;
  }
  return std::make_shared<data::DistributedSampler>(
      data::SamplerOptions{data.num_valid_samples, config.data.valid_batch_size, data::SampleOrder::kInOrder,
                           data::LastBatch::kKeep, config.seed});
}

int64_t total_steps(const RunConfig& config, const data::DistributedSampler& sampler) {
  return config.schedule.steps > 0 ? config.schedule.steps : config.schedule.epochs * sampler.steps_per_epoch();
}

}  // namespace

zero::AdamOptions adam_options(const OptimizerConfig& config) {
  zero::AdamOptions options;
  options.kind = config.kind == OptimizerKind::kAdamW ? zero::AdamKind::kAdamW : zero::AdamKind::kAdam;
  options.beta1 = config.beta1;
  options.beta2 = config.beta2;
  options.eps = config.eps;
  options.weight_decay = config.weight_decay;
  options.decay_vectors = config.decay_vectors;
  return options;
}

Trainer::Trainer(const RunConfig& config, mesh::DeviceMesh& mesh, const DataSource& data, RunLog& log)
    : config_(config),
      mesh_(mesh),
      data_(data),
      log_(log),
      engine_(engine_options(config), mesh),
      train_sampler_(train_sampler(config, data)),
      valid_sampler_(valid_sampler(config, data)),
      lr_schedule_{config.schedule.kind, config.scaled_lr(), config.schedule.warmup, 1},
      total_steps_(total_steps(config, *train_sampler_)),
      train_input_(
          open_input(*data.train, train_sampler_, total_steps_, {engine_.is_first_stage(), engine_.is_last_stage()})) {
  lr_schedule_.total = total_steps_;
  log_.set_total_steps(total_steps_);
}

void Trainer::run() {
  validate(0);
  for (int64_t epoch = 0; step_ < total_steps_ && !interrupted_; ++epoch) {
    const data::EpochPlan plan = train_sampler_->epoch(epoch);
    train_epoch(plan);
    validate(epoch + 1);
  }
}

void Trainer::train_epoch(const data::EpochPlan& plan) {
  const Timer timer;
  EpochRecord record;
  record.epoch = plan.epoch() + 1;
  double loss_sum = 0.0;
  for (int64_t i = 0; i < plan.num_steps() && step_ < total_steps_ && !interrupted_; ++i) {
    const StepRecord step = train_step(plan, i);
    log_.step(step);
    loss_sum += step.loss * static_cast<double>(step.samples);
    record.samples += step.samples;
  }
  record.seconds = timer.seconds();
  record.train_loss = loss_sum / static_cast<double>(std::max<int64_t>(record.samples, 1));
  log_.epoch(record);
}

StepRecord Trainer::train_step(const data::EpochPlan& plan, int64_t step_of_epoch) {
  comm::set_step(step_);
  const Timer timer;
  const double blocked_before = blocked_seconds();
  const double waited_before = train_input_.seconds_waited();
  engine_.reset_seconds();
  StepPlan step_plan;
  step_plan.micro_batches = train_input_.micro_batches(plan, step_of_epoch);
  step_plan.global_batch = static_cast<int64_t>(plan.batch(step_of_epoch).size());
  step_plan.context.seed = config_.seed;
  step_plan.context.step = step_;
  step_plan.context.mode = tensor::Mode::kTraining;

  StepRecord record;
  record.lr = lr_schedule_.at(step_);
  const StepResult result =
      engine_.train_step(std::move(step_plan), train_input_.open_step(plan, step_of_epoch), record.lr);
  record.step = ++step_;
  record.epoch = plan.epoch() + 1;
  record.samples = static_cast<int64_t>(plan.batch(step_of_epoch).size());
  record.loss = agree_at_border(result.loss);
  record.grad_norm = result.grad_norm;
  record.skipped = result.skipped;
  check_finite(record);
  record.seconds = {timer.seconds(),
                    engine_.seconds().forward,
                    engine_.seconds().backward,
                    blocked_seconds() - blocked_before,
                    engine_.seconds().optimizer,
                    train_input_.seconds_waited() - waited_before};
  totals_.add(record.seconds);
  return record;
}

double Trainer::agree_at_border(double loss) {
  // Tensor ranks of a replica hold the same loss: one of them counts.
  const double counted = mesh_.tensor().rank() == 0 ? loss : 0.0;
  const MemoryScope scope(MemoryClass::kCommunication);
  const at::Tensor sums = at::tensor({counted, stop_signal() != 0 ? 1.0 : 0.0}, at::kDouble);
  mesh_.host_world().all_reduce(sums, comm::ReduceOp::kSum).wait();
  interrupted_ = sums[1].item<double>() > 0.0;
  return sums[0].item<double>();
}

void Trainer::check_finite(const StepRecord& record) {
  skipped_in_a_row_ = record.skipped ? skipped_in_a_row_ + 1 : 0;
  if (skipped_in_a_row_ >= kMostSkippedInARow) {
    throw Error(ErrorClass::kBadData,
                str("the gradient was not finite in ", kMostSkippedInARow,
                    " steps one after the other, the last with loss ", record.loss),
                "lower --lr, clip with --clip-norm, or look for extreme values in the training data");
  }
}

void Trainer::validate(int64_t epoch) {
  if (valid_sampler_ == nullptr) {
    return;
  }
  const Timer timer;
  const data::EpochPlan plan = valid_sampler_->epoch(0);
  EvaluationSums sums = empty_sums();
  const data::Parts parts{engine_.is_first_stage() || engine_.is_last_stage(), engine_.is_last_stage()};
  StepInput input = open_input(*data_.valid, valid_sampler_, plan.num_steps(), parts);
  for (int64_t i = 0; i < plan.num_steps(); ++i) {
    StepPlan step_plan;
    step_plan.micro_batches = input.micro_batches(plan, i);
    step_plan.global_batch = static_cast<int64_t>(plan.batch(i).size());
    step_plan.context.seed = config_.seed;
    step_plan.evaluation = engine_.is_last_stage() ? &sums : nullptr;
    engine_.evaluate(std::move(step_plan), input.open_step(plan, i));
  }
  Evaluation figures = reduce(sums);
  log_.validation({epoch, step_, std::move(figures), timer.seconds()});
}

EvaluationSums Trainer::empty_sums() const {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  if (!config_.is_forecast()) {
    return EvaluationSums::classification();
  }
  const auto shape = data_.valid->target_shape();
  return EvaluationSums::forecast(shape[0], at::tensor(data::latitude_weights(shape[1]), at::kDouble),
                                  data_.climatology);
}

Evaluation Trainer::reduce(const EvaluationSums& sums) {
  const MemoryScope scope(MemoryClass::kCommunication);
  const bool counts = engine_.is_last_stage() && mesh_.tensor().rank() == 0;
  const at::Tensor total = counts ? sums.sums().clone() : at::zeros_like(sums.sums());
  mesh_.host_world().all_reduce(total, comm::ReduceOp::kSum).wait();
  return sums.finish(total);
}

StepInput Trainer::open_input(const data::Dataset& dataset, std::shared_ptr<const data::DistributedSampler> sampler,
                              int64_t num_steps, data::Parts parts) const {
  const ReplicaShare share{mesh_.data().rank(), mesh_.data().size(), config_.parallel.micro_batch_size};
  return {dataset, std::move(sampler), share, num_steps,
          data::LoaderOptions{parts, config_.data.prefetch_depth, config_.data.io_threads}};
}

}  // namespace vit_hybrid::train
