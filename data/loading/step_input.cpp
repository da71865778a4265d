// StepInput: two ways to read, one to ask.
#include "data/loading/step_input.h"

#include <deque>
#include <optional>
#include <utility>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/timer.h"

namespace vit_hybrid::data {

StepInput::StepInput(const Dataset& dataset, std::shared_ptr<const DistributedSampler> sampler,
                     comm::Communicator& tensor, StepInputOptions options)
    : dataset_(dataset), share_(options.share), bands_(tensor, dataset), parts_(options.loader.parts) {
  parts_.band = bands_.own();
  options.loader.parts = parts_;
  if (dataset.background_reads() && (parts_.input || parts_.target)) {
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
  if (parts_.target) {
    batch.targets = bands_.join(batch.targets);
  }
  return batch;
}

double StepInput::seconds_waited() const {
  return seconds_reading_ + (loader_ != nullptr ? loader_->seconds_waited() : 0.0);
}

}  // namespace vit_hybrid::data
