// Evaluator: one pass of a model over a data set, every sample counted once; the trainer's validation and `evaluate`.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "data/datasets/coordinates.h"
#include "data/datasets/dataset.h"
#include "data/datasets/normalization.h"
#include "data/loading/sampler.h"
#include "data/loading/step_input.h"
#include "parallel/mesh/device_mesh.h"
#include "src/config/run_config.h"
#include "src/report/scores.h"
#include "src/train/model_runner.h"

namespace vit_hybrid::train {

class ClassPredictions;

/// The input of this rank's replica for `num_steps` steps from `start` on, as the configuration reads ahead.
data::StepInput open_input(const DataConfig& data, int64_t micro_batch_size, mesh::DeviceMesh& mesh,
                           const data::Dataset& dataset, std::shared_ptr<const data::DistributedSampler> sampler,
                           int64_t num_steps, data::Parts parts, data::SamplePosition start = {});

class Evaluator {
 public:
  /// The first `num_samples` of `dataset`; anomalies are against `climatology` (see EvaluationSums), and rows are
  /// weighed by the latitudes of `grid`; `increments` is what the model predicts. All but the last three outlive the
  /// evaluator.
  Evaluator(const StepConfig& config, const DataConfig& data, mesh::DeviceMesh& mesh, ModelRunner& model,
            const data::Dataset& dataset, int64_t num_samples, at::Tensor climatology, data::Grid grid,
            const data::IncrementTarget& increments);

  /// The order of its samples, the same in every pass.
  data::EpochPlan plan() const { return sampler_->epoch(0); }
  /// The figures, on all ranks; of a classifier also what is predicted of each sample (may be null). Collective over
  /// the world.
  Evaluation evaluate(ClassPredictions* predictions = nullptr);

 private:
  EvaluationSums empty_sums() const;
  Evaluation reduce(const EvaluationSums& sums);

  const StepConfig& config_;
  const DataConfig& data_;
  mesh::DeviceMesh& mesh_;
  ModelRunner& model_;
  const data::Dataset& dataset_;
  std::shared_ptr<const data::DistributedSampler> sampler_;
  at::Tensor climatology_;
  data::Grid grid_;
  data::IncrementTarget increments_;  // on the device
};

}  // namespace vit_hybrid::train
