// Epochs, steps and micro-batches walked in order, and bands of samples exchanged among ranks.
#include "data/loading/step_input.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/timer.h"
#include "src/base/trace.h"

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

BandExchange::BandExchange(comm::Communicator& ranks, const Dataset& dataset) : ranks_(ranks) {
  const int64_t unit = dataset.band_unit();
  if (unit == 0 || ranks.size() == 1) {
    return;
  }
  const int64_t rows = dataset.input_shape()[1];
  const Partition units((rows + unit - 1) / unit, ranks.size());
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const Range part = units.part(rank);
    bands_.push_back({std::min(part.begin * unit, rows), std::min(part.end * unit, rows)});
  }
}

std::optional<Range> BandExchange::own() const {
  return bands_.empty() ? std::nullopt : std::optional(bands_[static_cast<size_t>(ranks_.rank())]);
}

at::Tensor BandExchange::join(const at::Tensor& band) {
  if (bands_.empty()) {
    return band;
  }
  const MemoryScope scope(MemoryClass::kData);
  const bool on_host = ranks_.device_type() == at::kCPU;
  const auto take = [&](std::vector<int64_t> shape, Range rows) {
    shape[2] = rows.size();
    return on_host ? pool_.take(shape, band.scalar_type())
                   : at::empty(shape, at::TensorOptions(band.scalar_type()).device(ranks_.device_type()));
  };
  const std::vector<int64_t> shape = band.sizes().vec();
  std::vector<at::Tensor> parts;
  std::vector<comm::Work> works;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const Range rows = bands_[static_cast<size_t>(rank)];
    parts.push_back(rank == ranks_.rank() ? to_device(band, ranks_.device_type(), band.scalar_type())
                                          : take(shape, rows));
    if (!rows.empty()) {
      works.push_back(ranks_.broadcast(parts.back(), rank));
    }
  }
  at::Tensor whole = take(shape, {0, bands_.back().end});
  for (comm::Work& work : works) {
    work.wait();
  }
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    whole.narrow(2, bands_[rank].begin, bands_[rank].size()).copy_(parts[rank]);
  }
  return whole;
}

StepInput::StepInput(const Dataset& dataset, std::shared_ptr<const DistributedSampler> sampler,
                     comm::Communicator& tensor, StepInputOptions options)
    : dataset_(dataset), share_(options.share), bands_(tensor, dataset), parts_(options.loader.parts) {
  parts_.band = bands_.own();
  options.loader.parts = parts_;
  if (dataset.background_reads() && (parts_.input || parts_.state || parts_.target)) {
    loader_ = std::make_unique<PrefetchLoader>(
        dataset, micro_batch_source(std::move(sampler), share_, options.start, options.num_steps), options.loader);
    copies_ = std::make_unique<DeviceCopies>(*loader_, options.loader.device);
  }
}

NextBatch StepInput::open_step(const EpochPlan& plan, int64_t step) {
  if (!dataset_.background_reads()) {
    return read_now(plan, step);
  }
  return [this] {
    VH_ASSERT(copies_ != nullptr, "this rank reads nothing");
    std::optional<Batch> batch = copies_->next();
    VH_ASSERT(batch.has_value(), "the loader ended before the run");
    return join_bands(std::move(*batch));
  };
}

NextBatch StepInput::read_now(const EpochPlan& plan, int64_t step) {
  const MemoryScope scope(MemoryClass::kData);
  const ScopedTimer timer(seconds_reading_);
  const trace::Scope slice({.kind = trace::Kind::kInput, .name = "data wait"});
  const auto own = micro_batches(plan, step);
  const auto most = static_cast<size_t>(most_micro_batches(plan, step, share_));
  auto batches = std::make_shared<std::deque<Batch>>();
  for (size_t i = 0; i < most; ++i) {  // a short replica takes part in the others' reads with no samples
    Batch batch = dataset_.read(i < own.size() ? own[i] : std::vector<int64_t>{}, parts_, plan.epoch());
    if (i < own.size()) {
      batches->push_back(std::move(batch));
    }
  }
  return [this, batches] {
    Batch batch = std::move(batches->front());
    batches->pop_front();
    return join_bands(std::move(batch));
  };
}

Batch StepInput::join_bands(Batch batch) {
  if (parts_.input) {
    batch.inputs = bands_.join(batch.inputs);
  }
  if (batch.states.defined()) {
    batch.states = bands_.join(batch.states);
  }
  if (parts_.target) {
    batch.targets = bands_.join(batch.targets);
  }
  return batch;
}

double StepInput::seconds_waited() const {
  return seconds_reading_ + (loader_ != nullptr ? loader_->seconds_waited() : 0.0);
}

}  // namespace vit_hybrid::data
