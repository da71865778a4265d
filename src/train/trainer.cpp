// Trainer: the loop over steps, with what is agreed at each border.
#include "src/train/trainer.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "parallel/comm/agreement.h"
#include "parallel/comm/failure.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/operation.h"
#include "parallel/comm/statistics.h"
#include "src/base/device/device_graph.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory_tracker.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/base/trace.h"
#include "src/machine/autotune.h"
#include "src/machine/device.h"
#include "src/train/loss_weights.h"
#include "src/train/saving/engine_state.h"
#include "src/train/saving/init_from.h"
#include "src/train/saving/resume.h"

namespace vit_hybrid::train {

namespace {

enum Sum : int64_t { kLoss, kDataWait, kTimeIsUp, kHasWritten, kSeconds, kHasTurned, kNumSums };
// Behind the sums above, of the peers of each rank of a replica.
enum PeerSum : int64_t { kWork, kSamples = kWork + std::ssize(kWorkParts), kNumPeerSums };
enum Most : int64_t { kMostDataWait, kSignal, kLeastBlocked, kNumMost };

constexpr int64_t kMostSkippedInARow = 10;

EngineOptions training_options(const StepConfig& config, c10::Device device) {
  EngineOptions options = engine_options(config);
  const StepRecording recording = step_recording(config, device);
  const auto unrecordable = config.cuda_graph == CudaGraph::kOn ? Unrecordable::kRefused : Unrecordable::kDonePlainly;
  const auto warning = std::make_shared<RecordingWarning>();
  options.recorder = recording.micro_batches ? make_device_recorder(unrecordable, warning) : nullptr;
  options.update_recorder = recording.updates ? make_device_recorder(unrecordable, warning) : nullptr;
  return options;
}

std::shared_ptr<const data::DistributedSampler> train_sampler(const RunConfig& config, const DataSource& data) {
  return std::make_shared<data::DistributedSampler>(
      data::SamplerOptions{data.num_train_samples, config.global_batch_size, data::SampleOrder::kShuffled,
                           config.data.drop_last ? data::LastBatch::kDrop : data::LastBatch::kKeep, config.seed});
}

TrainingPosition start_of(const CheckpointReader* resumed) {
  if (resumed == nullptr) {
    return {};
  }
  return {resumed->info().step, resumed->info().epoch, resumed->info().samples_of_epoch};
}

// Iterations of the whole run. What is left of the epochs may take other numbers of steps than before.
int64_t steps_of_run(const RunConfig& config, const data::DistributedSampler& sampler, const TrainingPosition& start) {
  if (config.schedule.steps > 0) {
    return config.schedule.steps;
  }
  if (config.schedule.epochs <= start.epoch) {
    return start.step;
  }
  const bool is_inside = start.samples_of_epoch > 0;
  const int64_t rest = is_inside ? sampler.epoch(start.epoch, start.samples_of_epoch).num_steps() : 0;
  const int64_t whole = config.schedule.epochs - start.epoch - (is_inside ? 1 : 0);
  return start.step + rest + steps_of_epochs(whole, sampler.steps_per_epoch());
}

void start_from(const CheckpointReader& checkpoint, const RunConfig& config, const std::string& class_names,
                Engine& engine, mesh::DeviceMesh& mesh, const comm::MpiGroup& world) {
  log_line(str("weights of ", checkpoint.path(), ", with a fresh optimizer"));
  const InitFromOptions options{config.model, config.checkpoint.init_from_partial, class_names};
  const auto remarks = comm::agreed(world, [&] {
    return init_from(checkpoint, options, engine.parameters().specs(), engine.optimizer(), mesh.model());
  });
  std::for_each(remarks.begin(), remarks.end(), &log_warning);
}

// Of a test as many as tell how long a batch takes.
int64_t num_validated(const RunConfig& config, const DataSource& data, bool is_test) {
  constexpr int64_t kTestedBatches = 20;
  return is_test ? std::min(data.num_valid_samples, kTestedBatches * config.data.valid_batch_size)
                 : data.num_valid_samples;
}

}  // namespace

BorderAgreement agree_at_border(const BorderReport& own, mesh::DeviceMesh& mesh) {
  comm::Communicator& host_world = mesh.host_world();
  const int ranks_of_replica = mesh.tensor().size() * mesh.pipeline().size();
  const int rank_of_replica = mesh.pipeline().rank() * mesh.tensor().size() + mesh.tensor().rank();
  const MemoryScope scope(MemoryClass::kCommunication);
  at::Tensor sums = at::zeros({kNumSums + ranks_of_replica * kNumPeerSums}, at::kDouble);
  auto* const sum = sums.mutable_data_ptr<double>();
  sum[kLoss] = own.loss;
  sum[kDataWait] = own.data_wait;
  sum[kTimeIsUp] = own.time_is_up ? 1.0 : 0.0;
  sum[kHasWritten] = own.has_written ? 1.0 : 0.0;
  sum[kSeconds] = own.seconds;
  sum[kHasTurned] = own.has_turned ? 1.0 : 0.0;
  double* const of_peers = sum + kNumSums + rank_of_replica * kNumPeerSums;
  std::copy(own.work.begin(), own.work.end(), of_peers + kWork);
  of_peers[kSamples] = own.samples;
  host_world.all_reduce(sums, comm::ReduceOp::kSum).wait();
  at::Tensor maxima = at::zeros({kNumMost}, at::kDouble);
  auto* const most = maxima.mutable_data_ptr<double>();
  most[kMostDataWait] = own.data_wait;
  most[kSignal] = own.signal;
  most[kLeastBlocked] = -own.blocked;
  host_world.all_reduce(maxima, comm::ReduceOp::kMax).wait();

  BorderAgreement all;
  all.loss = sum[kLoss];
  all.mean_data_wait = sum[kDataWait] / static_cast<double>(host_world.size());
  all.time_is_up = sum[kTimeIsUp] > 0.0;
  all.all_have_written = sum[kHasWritten] == static_cast<double>(host_world.size());
  all.most_data_wait = most[kMostDataWait];
  all.signal = static_cast<int>(most[kSignal]);
  all.least_blocked = -most[kLeastBlocked];
  all.mean_seconds = sum[kSeconds] / static_cast<double>(host_world.size());
  all.anybody_has_turned = sum[kHasTurned] > 0.0;
  std::copy_n(of_peers + kWork, all.peers_work.size(), all.peers_work.begin());
  all.peers_samples = of_peers[kSamples];
  return all;
}

EngineOptions engine_options(const StepConfig& config) {
  EngineOptions options;
  options.model = config.model;
  options.precision = precision_policy(config.precision);
  options.loss_scale = zero::loss_scale_options(config.precision.kind == Precision::kFp16, config.precision.loss_scale);
  options.recompute = config.recompute;
  options.micro_batch_parts = config.parallel.micro_batch_parts();
  options.optimizer = config.optimizer;
  options.zero_stage =
      config.parallel.state_shards() == 1 ? zero::ZeroStage::kReplicated : zero::ZeroStage::kOptimizerState;
  options.schedule = config.parallel.schedule;
  options.clip_norm = config.optimizer.clip_norm;
  options.bucket_bytes = config.parallel.bucket_bytes();
  options.seed = config.seed;
  return options;
}

LrSchedule planned_schedule(const RunConfig& config, const DataSource& data, const CheckpointReader* resumed) {
  return config.lr_schedule(steps_of_run(config, *train_sampler(config, data), start_of(resumed)));
}

Trainer::Trainer(const RunConfig& config, const comm::MpiGroup& world, mesh::DeviceMesh& mesh, const DataSource& data,
                 RunLog& log, TrainerOptions options)
    : config_(config),
      world_(world),
      mesh_(mesh),
      data_(data),
      log_(log),
      engine_(training_options(config, mesh.device()), mesh),
      train_sampler_(train_sampler(config, data)),
      evaluator_(data.valid == nullptr
                     ? nullptr
                     : std::make_unique<Evaluator>(config, config.data, mesh, engine_.model(), *data.valid,
                                                   num_validated(config, data, options.test != nullptr),
                                                   data.climatology, data.described.grid, data.increments)),
      increments_(data.increments.to(mesh.device(), precision_policy(config.precision).master)),
      options_(std::move(options)),
      position_(start_of(options_.resumed)),
      checkpoints_(config, world, mesh, engine_, log, options_.checkpoint_folder, data.described),
      total_steps_(steps_of_run(config, *train_sampler_, position_)),
      last_step_(options_.test != nullptr    ? position_.step + options_.test->steps()
                 : options_.range != nullptr ? config.find_lr
                                             : total_steps_),
      lr_schedule_(config.lr_schedule(std::max(total_steps_, last_step_))),
      train_input_(open_input(config.data, config.parallel.micro_batch_size, mesh, *data.train, train_sampler_,
                              last_step_ - position_.step,
                              {.input = engine_.model().is_first_stage(),
                               .target = engine_.model().is_last_stage(),
                               .state = engine_.model().is_last_stage() && data.increments},
                              {position_.epoch, position_.samples_of_epoch})) {
  comm::warn_of_unshared(world);
  engine_.model().set_loss_weights(
      loss_weights(config.loss, config.model, config.data.stats, world, loss_fields(*data.train, data.described)));
  log_.set_total_steps(last_step_);
}

void Trainer::load() {
  if (options_.resumed != nullptr) {
    restore(*options_.resumed, engine_, mesh_, world_);
    is_saved_ = true;
  } else if (options_.initial != nullptr) {
    start_from(*options_.initial, config_, data_.described.class_names, engine_, mesh_, world_);
  }
}

void Trainer::prepare() {
  checkpoints_.prepare(options_.resumed != nullptr ? options_.resumed->path() : "");
}

std::vector<int64_t> Trainer::micro_batch_sizes() const {
  std::vector<data::EpochPlan> plans = {train_sampler_->epoch(position_.epoch, position_.samples_of_epoch),
                                        train_sampler_->epoch(position_.epoch + 1)};
  if (evaluator_ != nullptr) {
    plans.push_back(evaluator_->plan());
  }
  std::set<int64_t> sizes;
  for (const data::EpochPlan& plan : plans) {
    const auto of_plan = train::micro_batch_sizes(plan, mesh_.data().size(), config_.parallel.micro_batch_size,
                                                  config_.parallel.micro_batch_parts());
    sizes.insert(of_plan.begin(), of_plan.end());
  }
  return {sizes.begin(), sizes.end()};
}

void Trainer::run() {
  begin();
  while (!is_over()) {
    const data::EpochPlan plan = train_sampler_->epoch(position_.epoch, position_.samples_of_epoch);
    if (plan.num_steps() > 0) {
      train_epoch(plan);
    } else {  // the rest of the epoch is less than a batch, and such are dropped
      position_ = {position_.step, position_.epoch + 1, 0};
    }
    if (stop_reason_) {
      break;
    }
    if (options_.test != nullptr) {
      continue;
    }
    validate(plan.epoch() + 1);
    if (!is_over() && (checkpoints_.is_due(position_.step) || (figures_ && checkpoints_.wants_best(*figures_)))) {
      save();
    }
  }
  if (options_.test != nullptr && !stop_reason_) {
    time_validation();
  }
  if (!is_saved_) {
    save();
  }
  complete_save();
  engine_.parameters().await_all();  // a peer that is lost meanwhile is told from here, not from a destructor
  for (StepWindow* window : options_.windows) {
    window->end_run(position_.step);
  }
}

void Trainer::turn_windows() {
  const int64_t next = position_.step + 1;
  for (StepWindow* window : options_.windows) {
    if (window->turns_before(next)) {
      log_.settle();
      engine_.parameters().await_all();
      window->turn_before(next);
    }
  }
}

void Trainer::begin() {
  const bool is_validated = options_.resumed != nullptr && !options_.resumed->info().metric.empty();
  if (position_.samples_of_epoch == 0 && !is_validated && options_.test == nullptr) {
    validate(position_.epoch);
  }
  if (config_.checkpoint.at_start && options_.resumed == nullptr) {
    save();
  }
}

void Trainer::train_epoch(const data::EpochPlan& plan) {
  if (options_.usage != nullptr) {
    options_.usage->enter(RunStage::kTraining);
  }
  const Timer timer;
  EpochRecord record;
  record.epoch = plan.epoch() + 1;
  double loss_sum = 0.0;
  for (int64_t i = 0; i < plan.num_steps() && !is_over(); ++i) {
    const StepRecord step = train_step(plan, i);
    log_.step(step);
    log_histograms(step.loss_scale);
    if (options_.range != nullptr) {
      options_.range->add(step.lr, step.loss);
      if (options_.range->has_diverged()) {
        last_step_ = position_.step;
      }
    } else {
      check_finite(step);
    }
    if (options_.test != nullptr) {
      options_.test->add(step);
    }
    if (all_have_written_) {
      log_.settle();
      complete_save();
      all_have_written_ = false;
    }
    loss_sum += step.loss * static_cast<double>(step.samples);
    record.samples += step.samples;
    record.mean_data_wait += step.mean_data_wait;
    record.most_data_wait += step.most_data_wait;
    if (checkpoints_.is_due(position_.step) && i + 1 < plan.num_steps() && !is_over()) {
      save();  // at the end of an epoch it is first validated
    }
  }
  log_.settle();
  record.seconds = timer.seconds();
  record.step = position_.step;
  record.train_loss = loss_sum / static_cast<double>(std::max<int64_t>(record.samples, 1));
  if (!config_.is_trial()) {
    log_.epoch(record);
  }
}

StepRecord Trainer::train_step(const data::EpochPlan& plan, int64_t step_of_epoch) {
  turn_windows();
  begin_first_step();
  comm::set_step(position_.step + 1);  // as the log counts
  const trace::Scope slice({.kind = trace::Kind::kStep, .name = "step", .step = position_.step + 1});
  const Timer timer;
  const Waits waits_before = Waits::now();
  const double waited_before = train_input_.seconds_waited();
  engine_.reset_seconds();
  StepPlan step_plan;
  step_plan.micro_batches = train_input_.micro_batches(plan, step_of_epoch);
  const auto own_samples = std::accumulate(step_plan.micro_batches.begin(), step_plan.micro_batches.end(), size_t{0},
                                           [](size_t sum, const auto& samples) { return sum + samples.size(); });
  step_plan.global_batch = static_cast<int64_t>(plan.batch(step_of_epoch).size());
  step_plan.context.seed = config_.seed;
  step_plan.context.step = position_.step;
  step_plan.context.mode = Mode::kTraining;
  step_plan.increments = increments_ ? &increments_ : nullptr;

  StepRecord record;
  record.lr = lr_schedule_.at(position_.step);
  const StepResult result =
      engine_.train_step(std::move(step_plan), train_input_.open_step(plan, step_of_epoch), record.lr);
  advance(plan, step_of_epoch);
  record.step = position_.step;
  record.epoch = plan.epoch() + 1;
  record.samples = static_cast<int64_t>(plan.batch(step_of_epoch).size());
  record.loss = result.loss;
  record.grad_norm = result.grad_norm;
  record.skipped = result.skipped;
  record.loss_scale = result.loss_scale;
  const PhaseSeconds& phases = engine_.seconds();
  record.seconds.forward = phases.forward;
  record.seconds.backward = phases.backward;
  record.seconds.reduce = phases.reduce;
  record.seconds.optimizer = phases.optimizer;
  record.seconds.data_wait = train_input_.seconds_waited() - waited_before;
  const auto blocked = [&](const Waits& waits) {
    return comm::total_of(waits.blocked).seconds - comm::total_of(waits_before.blocked).seconds;
  };
  const Waits waits = Waits::now();
  record.seconds.step = timer.seconds();
  record.seconds.communication = blocked(waits);
  const WorkSeconds work = own_work(record.seconds, waits_before, waits);
  agree(record, work, static_cast<double>(own_samples), step_of_epoch + 1 == plan.num_steps());
  record.seconds.step = timer.seconds();
  record.seconds.communication = blocked(Waits::now());
  totals_.add(record.seconds);
  add(total_work_, work);
  num_samples_ += record.samples;
  ++num_steps_;
  return record;
}

void Trainer::advance(const data::EpochPlan& plan, int64_t step_of_epoch) {
  ++position_.step;
  position_.samples_of_epoch += static_cast<int64_t>(plan.batch(step_of_epoch).size());
  if (step_of_epoch + 1 == plan.num_steps()) {
    ++position_.epoch;
    position_.samples_of_epoch = 0;
  }
  figures_.reset();
  is_saved_ = false;
}

void Trainer::agree(StepRecord& record, const WorkSeconds& work, double own_samples, bool ends_epoch) {
  const double next_seconds = record.seconds.step + (ends_epoch ? validation_seconds_ : 0.0);
  BorderReport own;
  // Tensor ranks of a replica hold the same loss: one of them counts.
  own.loss = mesh_.tensor().rank() == 0 ? record.loss : 0.0;
  own.data_wait = record.seconds.data_wait;
  own.time_is_up = options_.time_limit.is_near(next_seconds, checkpoints_.expected_seconds());
  own.has_written = checkpoints_.has_written();
  own.signal = stop_signal();
  own.seconds = record.seconds.step;
  own.work = work;
  own.blocked = record.seconds.communication;
  own.samples = own_samples;
  own.has_turned = has_turned_;
  const BorderAgreement all = agree_at_border(own, mesh_);
  watch_stragglers(record, own, all);
  record.loss = all.loss;
  record.mean_data_wait = all.mean_data_wait;
  record.most_data_wait = all.most_data_wait;
  all_have_written_ = all.all_have_written;
  if (position_.step < last_step_) {
    if (all.signal != 0) {
      stop_reason_ = signal_name(all.signal);
    } else if (all.time_is_up) {
      stop_reason_ = options_.time_limit.name();
    }
  }
}

void Trainer::watch_stragglers(const StepRecord& record, const BorderReport& own, const BorderAgreement& all) {
  if (all.anybody_has_turned) {
    std::vector<Json> found;
    for (const std::string& text : world_.gather(
             has_turned_ ? to_json(stragglers_.spells().back(), world_.rank(), comm::process_place().host).dump()
                         : std::string())) {
      if (!text.empty()) {
        found.push_back(Json::parse(text));
      }
    }
    log_.stragglers(record.step, found);
  }
  // The last batch of an epoch may leave replicas with fewer samples than others, or none.
  if (record.samples < config_.global_batch_size) {
    has_turned_ = false;
    return;
  }
  const WatchedStep step = {record.step,         all.mean_seconds, own.work,         own.samples,
                            mesh_.data().size(), all.peers_work,   all.peers_samples};
  has_turned_ = world_.size() > 1 && stragglers_.add(step);  // for one that is alone nobody waits
  if (options_.network != nullptr && options_.network->add(record.step, all.mean_seconds, all.least_blocked)) {
    engine_.parameters().await_all();  // which would be on the links when they are measured
    const Json told = options_.network->tell(record.step);
    if (!told.is_null()) {
      log_.network(told);
    }
  }
}

void Trainer::check_finite(const StepRecord& record) {
  skipped_in_a_row_ = record.skipped ? skipped_in_a_row_ + 1 : 0;
  // With a loss scale that is still too large, steps are skipped until it is not.
  const bool may_recover = std::isfinite(record.loss) && engine_.loss_scaler().can_back_off();
  if (skipped_in_a_row_ >= kMostSkippedInARow && !may_recover) {
    const bool is_fp16 = config_.precision.kind == Precision::kFp16;
    log_.settle();
    throw Error(
        ErrorClass::kBadData,
        str("the gradient was not finite in ", skipped_in_a_row_, " steps one after the other, the last with loss ",
            record.loss, is_fp16 ? str(" and loss scale ", record.loss_scale) : ""),
        is_fp16 && !engine_.loss_scaler().is_dynamic() && std::isfinite(record.loss)
            ? str("the loss is finite: --loss-scale ", record.loss_scale,
                  " is too large; give a smaller one, or dynamic")
            : str("lower --lr, clip with --clip-norm, or look for extreme values in the training data",
                  is_fp16 ? "; fp16 ends at 65504: --precision bf16 or fp32 have room" : ""));
  }
}

void Trainer::log_histograms(double loss_scale) {
  if (config_.histogram_every == 0 || position_.step % config_.histogram_every != 0) {
    return;
  }
  const Timer timer;
  HistogramsRecord record{position_.step, parameter_histograms(engine_, config_.model, mesh_, loss_scale)};
  record.seconds = timer.seconds();
  log_.histograms(record);
}

void Trainer::validate(int64_t epoch) {
  if (evaluator_ == nullptr) {
    return;
  }
  const StageScope stage(options_.usage, RunStage::kValidation);
  const Timer timer;
  Evaluation figures = evaluator_->evaluate();
  validation_seconds_ = timer.seconds();
  figures_ = figures;
  is_saved_ = false;  // the next checkpoint of these weights holds their figure
  log_.validation({epoch, position_.step, std::move(figures), validation_seconds_});
}

void Trainer::time_validation() {
  if (evaluator_ == nullptr) {
    return;
  }
  const StageScope stage(options_.usage, RunStage::kValidation);
  const Timer timer;
  evaluator_->evaluate();
  const int64_t batch = config_.data.valid_batch_size;
  tested_validation_ = {evaluator_->plan().num_steps(), (data_.num_valid_samples + batch - 1) / batch, timer.seconds()};
}

void Trainer::save() {
  const StageScope stage(config_.checkpoint.keep > 0 ? options_.usage : nullptr, RunStage::kSaving);
  log_.settle();
  checkpoints_.save(position_, figures_);
  is_saved_ = true;
}

void Trainer::complete_save() {
  const StageScope stage(config_.checkpoint.keep > 0 ? options_.usage : nullptr, RunStage::kSaving);
  checkpoints_.complete();
}

}  // namespace vit_hybrid::train
