// DistributedSampler: which sample is read in which step, by which replica, in which micro-batch. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace vit_hybrid::data {

enum class SampleOrder {
  kShuffled,  ///< a permutation keyed by (seed, epoch)
  kInOrder,   ///< 0, 1, 2, ...
};

enum class LastBatch {
  kKeep,  ///< the last step of an epoch may be smaller
  kDrop,  ///< every step has the whole batch; the samples left over are not seen in this epoch
};

struct SamplerOptions {
  int64_t num_samples = 0;
  int64_t global_batch_size = 1;
  SampleOrder order = SampleOrder::kShuffled;
  LastBatch last_batch = LastBatch::kKeep;
  uint64_t seed = 0;
};

/// A point in the order of all epochs: where a run stopped, and where the one that resumes it goes on.
struct SamplePosition {
  int64_t epoch = 0;
  int64_t first_sample = 0;  ///< samples of the epoch, in its order, that were seen already
};

/// The samples of one epoch in their order; a function of (options, epoch) alone, so any step of it can be asked for
/// again (resuming), by any rank of any layout. Spans point into this object.
class EpochPlan {
 public:
  /// The order without its first `first_sample` samples, which were seen already, in batches of any size. There may be
  /// no step left. Error(kBadData) if the epoch has fewer samples.
  EpochPlan(const SamplerOptions& options, int64_t epoch, int64_t first_sample = 0);

  int64_t epoch() const { return epoch_; }
  int64_t num_steps() const { return num_steps_; }
  /// The global batch of `step`: at most global_batch_size samples, at least one.
  std::span<const int64_t> batch(int64_t step) const;
  /// The part of replica `replica` of `num_replicas` (Partition): may be empty.
  std::span<const int64_t> replica_batch(int64_t step, int64_t replica, int64_t num_replicas) const;

 private:
  int64_t epoch_;
  int64_t batch_size_;
  int64_t num_steps_;
  std::vector<int64_t> order_;
};

/// The order of all epochs, of one set of options.
class DistributedSampler {
 public:
  /// Error(kUsage) without samples, with a batch below 1, or if dropping the last batch leaves no step.
  explicit DistributedSampler(SamplerOptions options);

  const SamplerOptions& options() const { return options_; }
  int64_t steps_per_epoch() const;
  /// The rest of an epoch of which `first_sample` samples were seen.
  EpochPlan epoch(int64_t epoch, int64_t first_sample = 0) const { return {options_, epoch, first_sample}; }

 private:
  SamplerOptions options_;
};

/// Number of micro-batches of at most `micro_batch_size` samples: ceil(n / m).
int64_t num_micro_batches(int64_t num_samples, int64_t micro_batch_size);

/// A replica's samples cut into them: micro-batch k is part k of Partition(n, number). No samples, no micro-batches.
std::vector<std::span<const int64_t>> micro_batches(std::span<const int64_t> samples, int64_t micro_batch_size);

}  // namespace vit_hybrid::data
