// MicroBatchStream: the micro-batches of one replica, step by step, as the loader asks for them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/loading/prefetch_loader.h"
#include "data/loading/sampler.h"

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

}  // namespace vit_hybrid::data
