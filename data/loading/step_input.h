// StepInput: the batches of each step of one replica, read ahead where the data set allows it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/datasets/dataset.h"
#include "data/loading/prefetch_loader.h"
#include "data/loading/sampler.h"
#include "data/loading/tensor_pool.h"
#include "parallel/comm/communicator.h"
#include "src/base/partition.h"

namespace vit_hybrid::data {

/// Which part of every global batch this rank's replica takes.
struct ReplicaShare {
  int64_t replica = 0;
  int64_t num_replicas = 1;
  int64_t micro_batch_size = 1;
};

/// Sample numbers of the micro-batches of one step of one replica; none is empty, there may be none.
std::vector<std::vector<int64_t>> replica_micro_batches(const EpochPlan& plan, int64_t step, const ReplicaShare& share);

/// Micro-batches of the replica with most samples of a step.
int64_t most_micro_batches(const EpochPlan& plan, int64_t step, const ReplicaShare& share);

/// The requests of `num_steps` steps from `start` on, without empty ones.
RequestSource micro_batch_source(std::shared_ptr<const DistributedSampler> sampler, ReplicaShare share,
                                 SamplePosition start, int64_t num_steps);

/// Gives each rank a share of the fields of a data set (share_fields()), and puts the shares together on all ranks.
/// With one rank, or a data set that is read whole, it leaves everything as it is.
class ShareExchange {
 public:
  /// For batches of these parts, the same on all ranks. `ranks` outlives it.
  ShareExchange(comm::Communicator& ranks, const Dataset& dataset, const Parts& parts);

  /// What this rank reads, maybe nothing of it; no value where samples are read whole.
  std::optional<FieldShare> own() const;
  /// What of the batch is a share becomes whole, on the device of the communicator. Collective over the ranks.
  Batch join(Batch batch);

 private:
  at::Tensor join(const at::Tensor& share, const std::vector<int64_t>& sources);

  comm::Communicator& ranks_;
  FieldCuts cuts_;
  std::vector<FieldShare> shares_;  // of each rank; empty: samples are read whole
  TensorPool pool_;                 // of host tensors
};

struct StepInputOptions {
  ReplicaShare share = {};
  int64_t num_steps = 0;
  SamplePosition start = {};  ///< of the first step: where the run that is resumed stopped
  LoaderOptions loader = {};  ///< batches that are read ahead are brought to its device
};

/// Joins data set, sampler and loader. Steps are opened one after the other from `start` on. The ranks of a replica's
/// stage read a share of the fields each, where the data set can be read so, and exchange them: each byte is read once.
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

  const Dataset& dataset_;
  ReplicaShare share_;
  ShareExchange shares_;
  Parts parts_;
  std::unique_ptr<PrefetchLoader> loader_;  // null where the main thread reads or nothing is read
  std::unique_ptr<DeviceCopies> copies_;    // of what it gives
  double seconds_reading_ = 0.0;
};

}  // namespace vit_hybrid::data
