// StepInput: the batches of each step of one replica, read ahead where the data set allows it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/dataset.h"
#include "data/prefetch_loader.h"
#include "data/sampler.h"
#include "src/train/micro_batch_stream.h"
#include "src/train/vit_program.h"

namespace vit_hybrid::train {

/// Joins data set, sampler and loader. Steps are opened one after the other from (epoch 0, step 0) on.
class StepInput {
 public:
  /// `dataset` outlives it. A rank that needs no part reads nothing.
  StepInput(const data::Dataset& dataset, std::shared_ptr<const data::DistributedSampler> sampler, ReplicaShare share,
            int64_t num_steps, data::LoaderOptions options);

  /// Sample numbers of the replica's micro-batches of a step.
  std::vector<std::vector<int64_t>> micro_batches(const data::EpochPlan& plan, int64_t step) const {
    return replica_micro_batches(plan, step, share_);
  }
  /// Gives the micro-batches of the step in order. Where reading is collective they are all read here, before the
  /// schedule, inside which the stages of a replica wait for each other; then it is collective over the data set's
  /// group.
  VitProgram::NextBatch open_step(const data::EpochPlan& plan, int64_t step);
  /// Seconds this rank has waited for data so far.
  double seconds_waited() const;

 private:
  VitProgram::NextBatch read_collectively(const data::EpochPlan& plan, int64_t step);

  const data::Dataset& dataset_;
  ReplicaShare share_;
  data::Parts parts_;
  std::unique_ptr<data::PrefetchLoader> loader_;  // null where reading is collective or nothing is read
  double seconds_reading_ = 0.0;
};

}  // namespace vit_hybrid::train
