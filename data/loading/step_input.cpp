// Epochs, steps and micro-batches walked in order, and shares of samples exchanged among ranks.
#include "data/loading/step_input.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <deque>
#include <numeric>
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

ShareExchange::ShareExchange(comm::Communicator& ranks, const Dataset& dataset, const Parts& parts)
    : ranks_(ranks),
      cuts_(dataset.cuts()),
      shares_(share_fields(cuts_, parts.input, parts.target || parts.state, ranks.size())) {}

std::optional<FieldShare> ShareExchange::own() const {
  return shares_.empty() ? std::nullopt : std::optional(shares_[static_cast<size_t>(ranks_.rank())]);
}

Batch ShareExchange::join(Batch batch) {
  if (shares_.empty()) {
    return batch;
  }
  if (batch.inputs.defined()) {
    batch.inputs = join(batch.inputs, cuts_.inputs);
  }
  if (batch.states.defined()) {
    batch.states = join(batch.states, cuts_.targets);
  }
  if (batch.targets.defined()) {
    batch.targets = join(batch.targets, cuts_.targets);
  }
  return batch;
}

at::Tensor ShareExchange::join(const at::Tensor& share, const std::vector<int64_t>& sources) {
  const MemoryScope scope(MemoryClass::kData);
  const bool on_host = ranks_.device_type() == at::kCPU;
  const auto take = [&](int64_t channels, int64_t rows) {
    const std::vector<int64_t> shape = {share.size(0), channels, rows, share.size(3)};
    return on_host ? pool_.take(shape, share.scalar_type())
                   : at::empty(shape, at::TensorOptions(share.scalar_type()).device(ranks_.device_type()));
  };
  struct Piece {
    Range rows;
    std::vector<Range> channels;  // of the whole, one after the other in `values`
    at::Tensor values;
  };
  std::vector<Piece> pieces;
  std::vector<comm::Work> works;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const FieldShare& of_rank = shares_[static_cast<size_t>(rank)];
    Piece piece{common_part(of_rank.rows, {0, cuts_.rows}), runs_of_share(sources, of_rank.channels), {}};
    const int64_t num_channels =
        std::accumulate(piece.channels.begin(), piece.channels.end(), int64_t{0},
                        [](int64_t sum, const Range& channels) { return sum + channels.size(); });
    if (num_channels == 0 || piece.rows.empty()) {
      continue;
    }
    piece.values = rank == ranks_.rank() ? to_device(share, ranks_.device_type(), share.scalar_type())
                                         : take(num_channels, piece.rows.size());
    works.push_back(ranks_.broadcast(piece.values, rank));
    pieces.push_back(std::move(piece));
  }
  at::Tensor whole = take(std::ssize(sources), cuts_.rows);
  for (comm::Work& work : works) {
    work.wait();
  }
  for (const Piece& piece : pieces) {
    int64_t first = 0;
    for (const Range& channels : piece.channels) {
      whole.narrow(1, channels.begin, channels.size())
          .narrow(2, piece.rows.begin, piece.rows.size())
          .copy_(piece.values.narrow(1, first, channels.size()));
      first += channels.size();
    }
  }
  return whole;
}

StepInput::StepInput(const Dataset& dataset, std::shared_ptr<const DistributedSampler> sampler,
                     comm::Communicator& tensor, StepInputOptions options)
    : dataset_(dataset),
      share_(options.share),
      shares_(tensor, dataset, options.loader.parts),
      parts_(options.loader.parts) {
  parts_.share = shares_.own();
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
    return shares_.join(std::move(*batch));
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
    return shares_.join(std::move(batch));
  };
}

double StepInput::seconds_waited() const {
  return seconds_reading_ + (loader_ != nullptr ? loader_->seconds_waited() : 0.0);
}

}  // namespace vit_hybrid::data
