// DeviceCopies: order between the stream of copies and that of the step, by events.
#include "data/loading/device_copies.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "src/base/memory_tracker.h"

namespace vit_hybrid::data {

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
    for (at::Tensor* part : {&batch.inputs, &batch.targets}) {
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
