// Trainer: assembles a run and walks its steps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/loading/sampler.h"
#include "data/loading/step_input.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/base/timer.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/config/lr_schedule.h"
#include "src/config/run_config.h"
#include "src/report/network_watch.h"
#include "src/report/run_log.h"
#include "src/report/step_window.h"
#include "src/report/stragglers.h"
#include "src/report/usage_sampler.h"
#include "src/train/data_source.h"
#include "src/train/engine.h"
#include "src/train/evaluator.h"
#include "src/train/saving/checkpointer.h"
#include "src/train/step_test.h"

namespace vit_hybrid::train {

/// Of one rank.
struct BorderReport {
  double loss = 0.0;         ///< its part of the global loss; the sum over ranks is that loss
  double data_wait = 0.0;    ///< seconds of the step
  bool time_is_up = false;   ///< there is no time for another step
  bool has_written = false;  ///< its part of the checkpoint under way
  int signal = 0;            ///< that asked it to stop; 0: none
  double seconds = 0.0;      ///< of the step up to here
  WorkSeconds work{};        ///< its own of the step
  double blocked = 0.0;      ///< seconds of the step, in communicators
  double samples = 0.0;      ///< that it worked on
  bool has_turned = false;   ///< it has become slow, or is slow no more
};

/// Of all, the same on every rank.
struct BorderAgreement {
  double loss = 0.0;
  double mean_data_wait = 0.0;
  double most_data_wait = 0.0;
  bool all_have_written = false;
  int signal = 0;           ///< the largest that any rank has seen; 0: none
  bool time_is_up = false;  ///< for any rank
  double mean_seconds = 0.0;
  WorkSeconds peers_work{};  ///< sums over the ranks that do the same in other replicas, and the own one
  double peers_samples = 0.0;
  bool anybody_has_turned = false;
  double least_blocked = 0.0;  ///< seconds of the step, of the rank that was blocked least
};

/// Two small messages. Collective over the mesh.
BorderAgreement agree_at_border(const BorderReport& own, mesh::DeviceMesh& mesh);

/// The options of an engine as the configuration of a run has them.
EngineOptions engine_options(const StepConfig& config);

/// What a training needs besides its configuration, mesh and data.
struct TrainerOptions {
  std::string checkpoint_folder;
  const CheckpointReader* resumed = nullptr;  ///< what the run goes on from, checked with check_resumable()
  const CheckpointReader* initial = nullptr;  ///< the weights that a new training starts from (--init-from)
  LrRange* range = nullptr;                   ///< is told the steps of --find-lr, and ends them
  StepTest* test = nullptr;                   ///< measures the steps, and says how many there are
  std::vector<StepWindow*> windows;           ///< what is done for some of the steps
  UsageSampler* usage = nullptr;              ///< is told the stages of the run
  NetworkWatch* network = nullptr;            ///< is told the steps; null: nobody looks at the links
  TimeLimit time_limit = TimeLimit(0.0, 0, 0);
};

/// The learning rates of the run that a Trainer of these would do without a test; Error(kUsage) where the data have no
/// samples, or epochs more iterations than can be counted.
LrSchedule planned_schedule(const RunConfig& config, const DataSource& data, const CheckpointReader* resumed);

/// Trains for the steps or epochs of the configuration, validates the untrained network and after every epoch, logs,
/// and saves checkpoints. With a range it does the steps of --find-lr, and with a test it does the test's steps at the
/// run's learning rates, and neither validates nor logs epochs. Everything is collective over the world.
class Trainer {
 public:
  /// All arguments outlive the trainer. `world`: the ranks of `mesh`.
  Trainer(const RunConfig& config, const comm::MpiGroup& world, mesh::DeviceMesh& mesh, const DataSource& data,
          RunLog& log, TrainerOptions options);

  /// Loads the state of the checkpoint, or the initial weights. Error(kBadData), agreed, where the file is damaged;
  /// then the trainer is of no more use.
  void load();
  /// Whether nothing is left to do, with the checkpoint's step.
  bool is_over() const { return position_.step >= last_step_ || stop_reason_; }
  /// Sees, once there is something to do, that checkpoints can be written. Errors as Checkpointer::prepare()'s.
  void prepare();

  /// Samples that the micro-batches of training and validation have, ascending: what kernels are chosen for.
  std::vector<int64_t> micro_batch_sizes() const;

  /// Runs to the end, or to the step border after an interruption was asked for on any rank or the time is up.
  void run();

  /// Iterations done, those before a resumption included.
  int64_t step() const { return position_.step; }
  /// Of the whole run, without a test.
  int64_t total_steps() const { return total_steps_; }
  /// The step that run() ends with where nothing stops it.
  int64_t last_step() const { return last_step_; }
  /// Of an epoch, and of the run without a test.
  TestedRun tested_run() const { return {train_sampler_->steps_per_epoch(), total_steps_, tested_validation_}; }
  /// Why run() ended before the last step: "signal SIGTERM", "--time-limit"; nothing if it did not.
  const std::optional<std::string>& stop_reason() const { return stop_reason_; }
  const Engine& engine() const { return engine_; }
  /// That were trained, since the start or the resumption.
  int64_t num_samples() const { return num_samples_; }
  /// And the steps that they took.
  int64_t num_steps() const { return num_steps_; }
  /// Sums over all training steps on this rank.
  const StepSeconds& total_seconds() const { return totals_; }
  /// And what of them this rank worked.
  const WorkSeconds& total_work() const { return total_work_; }
  /// In which others waited for this rank.
  const std::vector<SlowSpell>& slow_spells() const { return stragglers_.spells(); }

 private:
  /// Validates the untrained network, or what was stopped before it was validated.
  void begin();
  void train_epoch(const data::EpochPlan& plan);
  /// Begins or ends what is done for some of the steps, where the next one is the first or the first no more.
  void turn_windows();
  StepRecord train_step(const data::EpochPlan& plan, int64_t step_of_epoch);
  void advance(const data::EpochPlan& plan, int64_t step_of_epoch);
  /// The global loss from the replicas' ones; ranks also agree here whether somebody asked to stop, and whether all
  /// have written their part of a checkpoint, and learn how long the others waited for data.
  void agree(StepRecord& record, const WorkSeconds& work, double own_samples, bool ends_epoch);
  /// Finds out whether this rank has become slow, and tells who had at the border before.
  void watch_stragglers(const StepRecord& record, const BorderReport& own, const BorderAgreement& all);
  void check_finite(const StepRecord& record);
  /// By --histogram-every, of the step that is done.
  void log_histograms(double loss_scale);
  /// After `epoch` epochs; nothing without validation data.
  void validate(int64_t epoch);
  /// Of a test.
  void time_validation();
  void save();
  void complete_save();

  const RunConfig& config_;
  const comm::MpiGroup& world_;
  mesh::DeviceMesh& mesh_;
  const DataSource& data_;
  RunLog& log_;
  Engine engine_;
  std::shared_ptr<const data::DistributedSampler> train_sampler_;
  std::unique_ptr<Evaluator> evaluator_;  // null without validation data
  data::IncrementTarget increments_;      // on the device
  TrainerOptions options_;
  TrainingPosition position_;
  Checkpointer checkpoints_;
  int64_t total_steps_;
  int64_t last_step_;  // where run() ends: with a test it is another
  LrSchedule lr_schedule_;
  data::StepInput train_input_;
  std::optional<Evaluation> figures_;  // of the weights as they are now
  bool is_saved_ = false;              // the state as it is now
  bool all_have_written_ = false;      // of the save under way in the background
  double validation_seconds_ = 0.0;
  int64_t skipped_in_a_row_ = 0;
  std::optional<std::string> stop_reason_;
  StepSeconds totals_;
  WorkSeconds total_work_{};
  StragglerWatch stragglers_;
  bool has_turned_ = false;  // at the last border
  int64_t num_samples_ = 0;
  int64_t num_steps_ = 0;
  TestedValidation tested_validation_;
};

}  // namespace vit_hybrid::train
