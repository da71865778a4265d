// DeviceStream, DeviceEvent: the streams and events of a GPU, as what starts NCCL's operations sees them; ReusePool of
// events.
//
// device_stream_cuda.cpp makes them of CUDA's. It is all that stands between NcclLink and CUDA, so that the test
// programs with a fake device (tests/parallel/comm/nccl/fake_device.h) are linked with another definition, and with the
// same objects otherwise.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "parallel/comm/operation.h"

struct CUstream_st;

namespace vit_hybrid::comm {

/// A handle of a stream; copies are the same stream.
class DeviceStream {
 public:
  /// One of the device's pool, whose work goes before that of others.
  static DeviceStream of_pool(c10::Device device);
  /// The one on which the calling thread computes.
  static DeviceStream of_caller(c10::Device device);

  explicit DeviceStream(c10::Stream stream) : stream_(stream) {}

  c10::Stream get() const { return stream_; }
  /// CUDA's own handle (a cudaStream_t).
  CUstream_st* handle() const;
  /// Whether its work is being recorded into a graph, not done.
  bool is_capturing() const;
  /// Returns when all work on it is done.
  void synchronize() const;

 private:
  c10::Stream stream_;
};

/// A place among the work of a stream. It is made on the device when it is first recorded.
class DeviceEvent {
 public:
  enum class Timing { kOff, kOn };

  explicit DeviceEvent(Timing timing = Timing::kOff);
  ~DeviceEvent();
  DeviceEvent(const DeviceEvent&) = delete;
  DeviceEvent& operator=(const DeviceEvent&) = delete;

  /// It comes after what is on `stream` now. A later record() does not change what block() was told.
  void record(const DeviceStream& stream);
  /// Later work on `stream` runs after it; at once where it was not recorded.
  void block(const DeviceStream& stream) const;
  /// Whether the device has come to it.
  bool query() const;
  /// The same as the state of an operation on `device`, for the watchdog's thread: throws nothing, and makes no context
  /// on another device.
  DeviceStatus status(c10::Device device) const;
  /// From this one to `later`, both with Timing::kOn and complete.
  double seconds_until(const DeviceEvent& later) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// ReusePool: objects that are dear to make, lent and used again.

/// For objects as the events of a device. Used by one thread at a time.
template <class T>
class ReusePool {
 public:
  explicit ReusePool(std::function<std::shared_ptr<T>()> make) : make_(std::move(make)) {}

  /// One that nobody else holds; a new one where all are lent.
  std::shared_ptr<T> take() {
    // They come back about in the order in which they were lent: the first is free where any is, nearly always.
    for (size_t i = 0; i < items_.size(); ++i) {
      items_.push_back(std::move(items_.front()));
      items_.pop_front();
      if (items_.back().use_count() == 1) return items_.back();
    }
    items_.push_back(make_());
    return items_.back();
  }

  /// How many there are.
  size_t size() const { return items_.size(); }

 private:
  std::function<std::shared_ptr<T>()> make_;
  std::deque<std::shared_ptr<T>> items_;  // the one that was lent longest ago first
};

}  // namespace vit_hybrid::comm
