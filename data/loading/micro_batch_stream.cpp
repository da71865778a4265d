// MicroBatchStream: walks epochs, steps and micro-batches.
#include "data/loading/micro_batch_stream.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "src/base/partition.h"

namespace vit_hybrid::data {

namespace {

// State of one walk; the loader calls it from one thread at a time.
class Walk {
 public:
  Walk(std::shared_ptr<const DistributedSampler> sampler, ReplicaShare share, SamplePosition start, int64_t num_steps)
      : sampler_(std::move(sampler)),
        share_(share),
        steps_left_(num_steps),
        plan_(sampler_->epoch(start.epoch, start.first_sample)) {}

  std::optional<ReadRequest> next() {
    while (queue_.empty() && steps_left_ > 0) {
      queue_step();
    }
    if (queue_.empty()) {
      return std::nullopt;
    }
    ReadRequest request = std::move(queue_.front());
    queue_.pop_front();
    return request;
  }

 private:
  void queue_step() {
    if (step_ == plan_.num_steps()) {  // also where nothing was left of the first epoch
      plan_ = sampler_->epoch(plan_.epoch() + 1);
      step_ = 0;
    }
    for (auto& samples : replica_micro_batches(plan_, step_, share_)) {
      queue_.push_back({std::move(samples), plan_.epoch()});
    }
    ++step_;
    --steps_left_;
  }

  std::shared_ptr<const DistributedSampler> sampler_;
  ReplicaShare share_;
  int64_t steps_left_;
  EpochPlan plan_;
  int64_t step_ = 0;
  std::deque<ReadRequest> queue_;
};

}  // namespace

std::vector<std::vector<int64_t>> replica_micro_batches(const EpochPlan& plan, int64_t step,
                                                        const ReplicaShare& share) {
  std::vector<std::vector<int64_t>> result;
  const auto samples = plan.replica_batch(step, share.replica, share.num_replicas);
  for (const auto micro_batch : micro_batches(samples, share.micro_batch_size)) {
    result.emplace_back(micro_batch.begin(), micro_batch.end());
  }
  return result;
}

int64_t most_micro_batches(const EpochPlan& plan, int64_t step, const ReplicaShare& share) {
  const auto batch = static_cast<int64_t>(plan.batch(step).size());
  return num_micro_batches(Partition(batch, share.num_replicas).largest(), share.micro_batch_size);
}

RequestSource micro_batch_source(std::shared_ptr<const DistributedSampler> sampler, ReplicaShare share,
                                 SamplePosition start, int64_t num_steps) {
  auto walk = std::make_shared<Walk>(std::move(sampler), share, start, num_steps);
  return [walk] { return walk->next(); };
}

}  // namespace vit_hybrid::data
