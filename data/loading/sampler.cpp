// The keyed order of samples, and its parts.
#include "data/loading/sampler.h"

#include <numeric>
#include <utility>

#include "src/base/error.h"
#include "src/base/partition.h"
#include "src/base/random.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

// Of an epoch, or of what is left of it.
int64_t count_steps(const SamplerOptions& options, int64_t num_samples) {
  const int64_t batch = options.global_batch_size;
  return (num_samples + (options.last_batch == LastBatch::kKeep ? batch - 1 : 0)) / batch;
}

// Fisher-Yates from keyed draws: draw i chooses among the i + 1 places that are left.
std::vector<int64_t> keyed_permutation(int64_t count, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  const RandomStream stream(seed, Purpose::kSampleOrder, static_cast<uint64_t>(epoch));
  for (size_t i = order.size(); i-- > 1;) {
    std::swap(order[i], order[stream.below(i + 1, i)]);
  }
  return order;
}

}  // namespace

EpochPlan::EpochPlan(const SamplerOptions& options, int64_t epoch, int64_t first_sample)
    : epoch_(epoch),
      batch_size_(options.global_batch_size),
      num_steps_(count_steps(options, options.num_samples - first_sample)) {
  if (first_sample < 0 || first_sample > options.num_samples) {
    throw Error(ErrorClass::kBadData, str("cannot go on after ", first_sample, " samples of epoch ", epoch,
                                          ": an epoch has ", options.num_samples));
  }
  if (options.order == SampleOrder::kShuffled) {
    order_ = keyed_permutation(options.num_samples, options.seed, epoch);
  } else {
    order_.resize(static_cast<size_t>(options.num_samples));
    std::iota(order_.begin(), order_.end(), int64_t{0});
  }
  order_.erase(order_.begin(), order_.begin() + first_sample);
}

std::span<const int64_t> EpochPlan::batch(int64_t step) const {
  VH_ASSERT(step >= 0 && step < num_steps_, str("step ", step, " of ", num_steps_));
  const auto begin = static_cast<size_t>(step * batch_size_);
  return std::span(order_).subspan(begin, std::min(static_cast<size_t>(batch_size_), order_.size() - begin));
}

std::span<const int64_t> EpochPlan::replica_batch(int64_t step, int64_t replica, int64_t num_replicas) const {
  const auto all = batch(step);
  const Range part = Partition(static_cast<int64_t>(all.size()), num_replicas).part(replica);
  return all.subspan(static_cast<size_t>(part.begin), static_cast<size_t>(part.size()));
}

DistributedSampler::DistributedSampler(SamplerOptions options) : options_(options) {
  if (options_.num_samples < 1) {
    throw Error(ErrorClass::kUsage, "the data set has no samples");
  }
  if (options_.global_batch_size < 1) {
    throw Error(ErrorClass::kUsage, str("global batch size ", options_.global_batch_size, ", at least 1 is needed"));
  }
  if (steps_per_epoch() == 0) {
    throw Error(ErrorClass::kUsage,
                str("dropping the last part-batch leaves no step: ", options_.num_samples,
                    " samples, global batch size ", options_.global_batch_size),
                "keep the last batch or give a global batch size of at most the number of samples");
  }
}

int64_t DistributedSampler::steps_per_epoch() const {
  return count_steps(options_, options_.num_samples);
}

int64_t num_micro_batches(int64_t num_samples, int64_t micro_batch_size) {
  VH_ASSERT(num_samples >= 0 && micro_batch_size >= 1, str(num_samples, " samples by ", micro_batch_size));
  return (num_samples + micro_batch_size - 1) / micro_batch_size;
}

std::vector<std::span<const int64_t>> micro_batches(std::span<const int64_t> samples, int64_t micro_batch_size) {
  const auto num_samples = static_cast<int64_t>(samples.size());
  std::vector<std::span<const int64_t>> parts;
  if (samples.empty()) {
    return parts;
  }
  const Partition partition(num_samples, num_micro_batches(num_samples, micro_batch_size));
  for (int64_t k = 0; k < partition.parts(); ++k) {
    const Range part = partition.part(k);
    parts.push_back(samples.subspan(static_cast<size_t>(part.begin), static_cast<size_t>(part.size())));
  }
  return parts;
}

}  // namespace vit_hybrid::data
