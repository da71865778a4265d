// Trainer: epochs, steps, validation and records of a run; the only place that assembles.
#pragma once

#include <cstdint>
#include <memory>

#include "data/dataset.h"
#include "data/sampler.h"
#include "parallel/mesh/device_mesh.h"
#include "src/train/data_source.h"
#include "src/train/engine.h"
#include "src/train/evaluation.h"
#include "src/train/lr_schedule.h"
#include "src/train/run_config.h"
#include "src/train/run_log.h"
#include "src/train/step_input.h"

namespace vit_hybrid::train {

/// The optimizer's hyperparameters as the configuration has them.
zero::AdamOptions adam_options(const OptimizerConfig& config);

/// Trains for the steps or epochs of the configuration, validates the untrained network and after every epoch, and
/// logs. Everything is collective over the world.
class Trainer {
 public:
  /// All arguments outlive the trainer.
  Trainer(const RunConfig& config, mesh::DeviceMesh& mesh, const DataSource& data, RunLog& log);

  /// Runs to the end, or to the step border after an interruption was asked for on any rank.
  void run();

  /// True if run() ended because of an interruption.
  bool interrupted() const { return interrupted_; }
  const Engine& engine() const { return engine_; }
  /// Sums over all training steps on this rank.
  const StepSeconds& total_seconds() const { return totals_; }

 private:
  void train_epoch(const data::EpochPlan& plan);
  StepRecord train_step(const data::EpochPlan& plan, int64_t step_of_epoch);
  /// The global loss from the replicas' ones; ranks also agree here whether somebody asked to stop.
  double agree_at_border(double loss);
  void check_finite(const StepRecord& record);
  /// After `epoch` epochs; nothing without validation data.
  void validate(int64_t epoch);
  EvaluationSums empty_sums() const;
  Evaluation reduce(const EvaluationSums& sums);
  StepInput open_input(const data::Dataset& dataset, std::shared_ptr<const data::DistributedSampler> sampler,
                       int64_t num_steps, data::Parts parts) const;

  const RunConfig& config_;
  mesh::DeviceMesh& mesh_;
  const DataSource& data_;
  RunLog& log_;
  Engine engine_;
  std::shared_ptr<const data::DistributedSampler> train_sampler_;
  std::shared_ptr<const data::DistributedSampler> valid_sampler_;  // null without validation data
  LrSchedule lr_schedule_;
  int64_t total_steps_;
  StepInput train_input_;
  int64_t step_ = 0;
  int64_t skipped_in_a_row_ = 0;
  bool interrupted_ = false;
  StepSeconds totals_;
};

}  // namespace vit_hybrid::train
