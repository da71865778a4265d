// Events with times, counted from one whose time the host knows.
#include "parallel/comm/nccl/device_marks.h"

#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "parallel/comm/nccl/device_stream.h"

namespace vit_hybrid::comm {

namespace {

// The device's clock against the host's.
struct Anchor {
  DeviceEvent event{DeviceEvent::Timing::kOn};
  int64_t time = 0;
};

// Of the latest recording.
std::shared_ptr<const Anchor>& latest_anchor() {
  static std::shared_ptr<const Anchor> anchor;
  return anchor;
}

class Mark : public trace::DeviceMark {
 public:
  Mark(std::shared_ptr<const Anchor> anchor, const DeviceStream& stream) : anchor_(std::move(anchor)) {
    event_.record(stream);
  }
  int64_t time() const override {
    constexpr std::chrono::microseconds kPause(50);
    while (!event_.query())
      std::this_thread::sleep_for(kPause);
    return anchor_->time + std::llround(1e9 * anchor_->event.seconds_until(event_));
  }

 private:
  std::shared_ptr<const Anchor> anchor_;
  DeviceEvent event_{DeviceEvent::Timing::kOn};
};

}  // namespace

trace::MakeMark device_marks(c10::Device device) {
  if (device.is_cpu()) return nullptr;
  const auto anchor = std::make_shared<Anchor>();
  anchor->event.record(DeviceStream::of_caller(device));
  while (!anchor->event.query()) {
  }
  anchor->time = trace::now();
  latest_anchor() = anchor;
  return [device] { return mark_on(DeviceStream::of_caller(device)); };
}

std::unique_ptr<trace::DeviceMark> mark_on(const DeviceStream& stream) {
  const auto& anchor = latest_anchor();
  return anchor == nullptr || stream.is_capturing() ? nullptr : std::make_unique<Mark>(anchor, stream);
}

}  // namespace vit_hybrid::comm
