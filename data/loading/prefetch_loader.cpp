// The threads of the prefetching loader (requests are claimed in order, results are returned in order), and the copies
// to a device.
#include "data/loading/prefetch_loader.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "parallel/comm/operation.h"
#include "src/base/error.h"
#include "src/base/host.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/base/trace.h"

namespace vit_hybrid::data {

namespace {
constexpr std::chrono::milliseconds kBetweenNotes{100};
}  // namespace

PrefetchLoader::PrefetchLoader(const Dataset& dataset, RequestSource source, LoaderOptions options)
    : dataset_(dataset), options_(options), source_(std::move(source)) {
  VH_ASSERT(options_.prefetch_depth >= 1 && options_.num_threads >= 0,
            str("depth ", options_.prefetch_depth, ", threads ", options_.num_threads));
  VH_ASSERT(dataset_.background_reads(), "the data set is read by the main thread");
  // More threads than batches under way would have nothing to do.
  const int64_t num_threads = std::min(options_.num_threads, options_.prefetch_depth);
  try {
    for (int64_t i = 0; i < num_threads; ++i) {
      threads_.emplace_back([this] { run_thread(); });
    }
  } catch (...) {  // the system gives no more threads: those that run must be joined before they are destroyed
    stop();
    throw;
  }
}

PrefetchLoader::~PrefetchLoader() {
  stop();
}

void PrefetchLoader::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
  threads_.clear();
}

std::optional<Batch> PrefetchLoader::next() {
  const ScopedTimer timer(seconds_waited_);
  const trace::Scope slice({.kind = trace::Kind::kInput, .name = "data wait"});
  return reads_ahead() ? next_prefetched() : next_now();
}

bool PrefetchLoader::has_next() {
  const std::lock_guard lock(mutex_);
  const auto found = results_.find(num_returned_);
  return found != results_.end() && !found->second.error;
}

std::optional<Batch> PrefetchLoader::next_now() {
  const auto request = pull_request();
  if (!request) {
    return std::nullopt;
  }
  Result result = read(*request);
  if (result.error) {
    at_end_ = true;
    std::rethrow_exception(result.error);
  }
  return std::move(result.batch);
}

std::optional<Batch> PrefetchLoader::next_prefetched() {
  std::unique_lock lock(mutex_);
  const auto is_there = [&] { return results_.contains(num_returned_) || (at_end_ && num_claimed_ == num_returned_); };
  while (!changed_.wait_for(lock, kBetweenNotes, is_there))
    comm::note_work_of_helpers();
  if (!results_.contains(num_returned_)) {
    return std::nullopt;
  }
  Result result = std::move(results_.extract(num_returned_).mapped());
  if (result.error) {
    at_end_ = true;
    results_.clear();
    num_claimed_ = num_returned_;  // what other threads still read is dropped
    std::rethrow_exception(result.error);
  }
  ++num_returned_;
  lock.unlock();
  changed_.notify_all();
  return std::move(result.batch);
}

// The next request of the source that there is to read. The caller holds the lock where threads run.
std::optional<ReadRequest> PrefetchLoader::pull_request() {
  while (!at_end_) {
    auto request = source_();
    if (!request) {
      at_end_ = true;
    } else if (!request->samples.empty()) {
      return request;
    }
  }
  return std::nullopt;
}

std::optional<std::pair<int64_t, ReadRequest>> PrefetchLoader::claim_request() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopping_ || at_end_ || num_claimed_ - num_returned_ < options_.prefetch_depth; });
  if (stopping_) {
    return std::nullopt;
  }
  std::optional<ReadRequest> request;
  try {
    request = pull_request();
  } catch (...) {  // of the source: takes its place in the order like an error of reading
    at_end_ = true;
    results_.emplace(num_claimed_++, Result{{}, std::current_exception()});
  }
  if (!request) {
    lock.unlock();
    changed_.notify_all();
    return std::nullopt;
  }
  return std::pair(num_claimed_++, std::move(*request));
}

void PrefetchLoader::run_thread() {
  use_allowed_processors();
  if (!options_.device.is_cpu()) {
    c10::impl::VirtualGuardImpl(options_.device.type()).setDevice(options_.device);
  }
  const MemoryTracker::Attachment attachment;
  while (auto claimed = claim_request()) {
    Result result = read(claimed->second);
    {
      const std::lock_guard lock(mutex_);
      results_.emplace(claimed->first, std::move(result));
    }
    changed_.notify_all();
  }
}

PrefetchLoader::Result PrefetchLoader::read(const ReadRequest& request) const {
  const MemoryScope scope(MemoryClass::kData);
  const trace::Scope slice({.kind = trace::Kind::kRead, .name = "read"});
  try {
    return {dataset_.read(request.samples, options_.parts, request.epoch), nullptr};
  } catch (...) {
    return {{}, std::current_exception()};
  }
}

class DeviceCopies::Stream {
 public:
  explicit Stream(c10::Device device)
      : device_(device), guard_(device.type()), copies_(other_stream()), free_(device.type()), done_(device.type()) {}

  // Memory that is still copied into goes back to the step's stream after the copy.
  ~Stream() {
    if (started_) {
      done_.block(guard_.getStream(device_));
    }
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  bool has_started() const { return started_.has_value(); }

  // The memory is the step's stream's: what it held before is no longer used once that stream has come to here, and
  // when it is given up again the copy has been waited for.
  void start(Batch batch) {
    const MemoryScope scope(MemoryClass::kData);
    free_.record(guard_.getStream(device_));
    free_.block(copies_);
    for (at::Tensor* part : {&batch.inputs, &batch.states, &batch.targets}) {
      if (part->defined()) {
        const at::Tensor there = at::empty_like(*part, part->options().device(device_).pinned_memory(false));
        const c10::StreamGuard on_copies(copies_);
        there.copy_(*part, /*non_blocking=*/part->is_pinned());
        *part = there;
      }
    }
    done_.record(copies_);
    started_ = std::move(batch);
  }

  Batch finish() {
    done_.block(guard_.getStream(device_));
    return *std::exchange(started_, std::nullopt);
  }

 private:
  // The pool goes round: its next stream may be the one that the step is on.
  c10::Stream other_stream() const {
    const c10::Stream next = guard_.getStreamFromGlobalPool(device_, /*isHighPriority=*/false);
    return next == guard_.getStream(device_) ? guard_.getStreamFromGlobalPool(device_, /*isHighPriority=*/false) : next;
  }

  c10::Device device_;
  c10::impl::VirtualGuardImpl guard_;
  c10::Stream copies_;
  c10::Event free_;
  c10::Event done_;
  std::optional<Batch> started_;
};

DeviceCopies::DeviceCopies(PrefetchLoader& loader, c10::Device device)
    : loader_(loader), stream_(device.is_cpu() ? nullptr : std::make_unique<Stream>(device)) {}

DeviceCopies::~DeviceCopies() = default;

std::optional<Batch> DeviceCopies::next() {
  if (stream_ == nullptr) {
    return loader_.next();
  }
  if (!stream_->has_started()) {
    std::optional<Batch> batch = loader_.next();
    if (!batch) {
      return std::nullopt;
    }
    stream_->start(std::move(*batch));
  }
  Batch batch = stream_->finish();
  if (loader_.has_next()) {
    stream_->start(std::move(*loader_.next()));
  }
  return batch;
}

at::Tensor to_device(const at::Tensor& tensor, c10::Device device, at::ScalarType type) {
  const bool non_blocking = device.is_cuda() && tensor.is_cpu() && tensor.is_pinned();
  return tensor.to(device, type, non_blocking);
}

}  // namespace vit_hybrid::data
