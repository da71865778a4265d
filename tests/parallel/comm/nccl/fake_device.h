// A fake of a GPU's streams and events, for host tensors: each stream is a queue that a thread of its own works off,
// late; what the host computes is done at once. With a record of who waits for whom.
//
// fake_device.cpp defines what parallel/comm/nccl/device_stream.h declares. The caller's stream is the calling thread:
// an event on it is complete when it is recorded, and to hold it is to wait.
//
// A recording keeps what is asked of the caller's stream, and of those that come to wait for it, as a list, and does
// nothing of it: only the host computes, with what stands in memory that should have been summed. A replay has the host
// compute once more, on that run's tensors, and does what is asked of the streams meanwhile, which must be the list,
// call by call: so each operation and each wait of it is one that was recorded. In both, who queries an event or waits
// for a stream gets CUDA's error.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

struct CUstream_st;

namespace vit_hybrid::testing {

/// What a test wants of the fake.
struct FakeDevice {
  bool is_used = false;                          ///< communicators are made of NCCL's back end, for host tensors
  uint64_t seed = 1;                             ///< of the delays
  std::chrono::microseconds longest_delay{200};  ///< before each piece of work on a stream
  /// What is put on a stream runs as late as may be: when the caller waits for the stream.
  bool runs_late = false;
  /// Planted: in this phase of the run ("forward") the caller's stream waits for no event.
  std::optional<std::string> phase_without_waits;
  bool streams_wait = true;  ///< planted if not: no other stream waits for an event
};

/// The one of this process.
FakeDevice& fake_device();

/// The fake device is used while this object lives, and is as new afterwards.
class FakeDeviceInUse {
 public:
  FakeDeviceInUse() { fake_device().is_used = true; }
  ~FakeDeviceInUse() { fake_device() = {}; }
  FakeDeviceInUse(const FakeDeviceInUse&) = delete;
  FakeDeviceInUse& operator=(const FakeDeviceInUse&) = delete;

  FakeDevice* operator->() { return &fake_device(); }
};

/// Something was done that would go wrong on a GPU now or then. From any thread.
void report_fault(const std::string& text);
/// What has been reported since the last call.
std::vector<std::string> take_faults();

/// What is asked of the streams while work is recorded: "ncclAllReduce on stream 2".
struct RecordedCalls {
  std::vector<std::string> texts;
  std::vector<std::shared_ptr<void>> kept;  ///< as long as the graph lives
};

/// From now on the caller's stream is recorded.
void begin_recording();
/// Throws what CUDA does where another stream has come to wait for the caller's, and the caller not for all of its
/// work.
RecordedCalls end_recording();
/// The recording that is going on, if any, ends without a graph.
void give_up_recording();
/// Calls `compute`, which asks of the streams what it did when `calls` were recorded: else a fault is reported.
void replay(const RecordedCalls& calls, const std::function<void()>& compute);

/// A stream of the pool. Work is put on it by one thread.
class FakeStream {
 public:
  /// The one with CUDA's handle.
  static FakeStream& of(CUstream_st* handle) { return *reinterpret_cast<FakeStream*>(handle); }
  CUstream_st* handle() { return reinterpret_cast<CUstream_st*>(this); }

  explicit FakeStream(uint64_t number);

  void put(std::function<void()> work);
  /// Returns when all work is done.
  void synchronize();

  /// The caller waits for what is on it.
  void note_wait();
  /// Work that is put from now on runs after what the caller had begun by the time `moment`.
  void follow(uint64_t moment) { followed_ = std::max(followed_, moment); }
  /// The same of the first `count` pieces of work of another stream.
  void follow(const FakeStream& other, uint64_t count) {
    uint64_t& most = followed_streams_[&other];
    most = std::max(most, count);
  }
  /// Whether it runs after piece `number` of another stream, from 0.
  bool is_behind(const FakeStream& other, uint64_t number) const {
    const auto found = followed_streams_.find(&other);
    return found != followed_streams_.end() && number < found->second;
  }
  /// Pieces of work that were put on it.
  uint64_t num_put() const { return num_put_; }
  /// An operation, named `what`, is about to be put: reports a fault where it would not run after all that the caller
  /// has begun.
  void begin_operation(const std::string& what);
  /// Whether what is put is recorded. Then it is not to be put: `kept` lives as long as the graph.
  bool is_recorded() const;
  void record_operation(std::shared_ptr<void> kept);

  /// By the recording that is going on: operations, and how many of them the caller waits for once it does.
  struct Recorded {
    uint64_t recording = 0;
    uint64_t num_operations = 0;
    std::optional<uint64_t> num_joined;
  };
  Recorded& recorded() { return recorded_; }
  uint64_t number() const { return number_; }

 private:
  struct Entry {
    std::function<void()> work;
    std::optional<uint64_t> waits_before;  // if the caller has to wait once more before it runs
  };

  void run();
  void pause(uint64_t number, const Entry& entry) const;

  uint64_t number_;
  uint64_t followed_ = 0;
  std::map<const FakeStream*, uint64_t> followed_streams_;
  uint64_t num_put_ = 0;
  Recorded recorded_;
  std::atomic<uint64_t> num_waits_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> queue_;  // what runs is the first
  std::thread thread_;
};

}  // namespace vit_hybrid::testing
