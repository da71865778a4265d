// StepInput: the batches of each step of one replica, read ahead where the data set allows it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/datasets/dataset.h"
#include "data/loading/band_exchange.h"
#include "data/loading/device_copies.h"
#include "data/loading/micro_batch_stream.h"
#include "data/loading/prefetch_loader.h"
#include "data/loading/sampler.h"
#include "parallel/comm/communicator.h"

namespace vit_hybrid::data {

struct StepInputOptions {
  ReplicaShare share = {};
  int64_t num_steps = 0;
  SamplePosition start = {};  ///< of the first step: where the run that is resumed stopped
  LoaderOptions loader = {};  ///< batches that are read ahead are brought to its device
};

/// Joins data set, sampler and loader. Steps are opened one after the other from `start` on. The ranks of a replica's
/// stage read a band of the rows each, where the data set can be read so, and exchange them: each byte is read once.
class StepInput {
 public:
  /// `dataset` and `tensor` (the ranks of this replica's stage) outlive it. A rank that needs no part reads nothing.
  StepInput(const Dataset& dataset, std::shared_ptr<const DistributedSampler> sampler, comm::Communicator& tensor,
            StepInputOptions options);
  // The batches that open_step() promised point here.
  StepInput(const StepInput&) = delete;
  StepInput& operator=(const StepInput&) = delete;

  /// Sample numbers of the replica's micro-batches of a step.
  std::vector<std::vector<int64_t>> micro_batches(const EpochPlan& plan, int64_t step) const {
    return replica_micro_batches(plan, step, share_);
  }
  /// Gives the micro-batches of the step in order; each call is collective over the ranks of the stage. Where reading
  /// is for the main thread they are all read here, before the schedule, inside which the stages of a replica wait for
  /// each other; then it is collective over the data set's group.
  NextBatch open_step(const EpochPlan& plan, int64_t step);
  /// Seconds this rank has waited for data so far.
  double seconds_waited() const;

 private:
  NextBatch read_now(const EpochPlan& plan, int64_t step);
  Batch join_bands(Batch batch);

  const Dataset& dataset_;
  ReplicaShare share_;
  BandExchange bands_;
  Parts parts_;
  std::unique_ptr<PrefetchLoader> loader_;  // null where the main thread reads or nothing is read
  std::unique_ptr<DeviceCopies> copies_;    // of what it gives
  double seconds_reading_ = 0.0;
};

}  // namespace vit_hybrid::data
