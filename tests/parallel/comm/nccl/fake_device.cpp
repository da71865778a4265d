// Queues and their threads, events, and the edges from the caller to the streams.
#include "tests/parallel/comm/nccl/fake_device.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "parallel/comm/nccl/device_stream.h"
#include "parallel/comm/operation.h"
#include "src/base/random.h"
#include "tests/support/mpi_test.h"

namespace vit_hybrid::testing {

namespace {

constexpr c10::StreamId kCaller = 0;  // the others are the pool's, from 1
constexpr size_t kStreamsOfPool = 32;

// What the host computes is not seen. But between two operations, or after it was held, the caller may have begun
// something: each is a new moment, and an event knows at which it was recorded. Of the thread that computes.
uint64_t g_moment = 1;

bool waits_are_left_out() {
  return fake_device().phase_without_waits == comm::run_position().phase;
}

// Never destroyed, as their threads do not end.
std::vector<FakeStream*>& pool() {
  static auto* const streams = new std::vector<FakeStream*>;
  return *streams;
}

enum class Manner { kRunning, kRecording, kReplaying };

struct Recording {
  Manner manner = Manner::kRunning;
  uint64_t number = 0;  // of those of the process, from 1
  RecordedCalls calls;  // of this recording or replay
};

// Of the thread that computes.
Recording& recording() {
  static Recording instance;
  return instance;
}

void note_call(std::string text) {
  if (recording().manner != Manner::kRunning) recording().calls.texts.push_back(std::move(text));
}

void refuse_while_recorded() {
  TORCH_CHECK(recording().manner == Manner::kRunning, "operation not permitted when stream is capturing");
}

struct Faults {
  std::mutex mutex;
  std::vector<std::string> texts;
};

Faults& faults() {
  static auto* const instance = new Faults;
  return *instance;
}

}  // namespace

FakeDevice& fake_device() {
  static FakeDevice device;
  return device;
}

void report_fault(const std::string& text) {
  const std::lock_guard lock(faults().mutex);
  faults().texts.push_back(text);
}

std::vector<std::string> take_faults() {
  const std::lock_guard lock(faults().mutex);
  return std::exchange(faults().texts, {});
}

void begin_recording() {
  recording() = {Manner::kRecording, recording().number + 1, {}};
}

RecordedCalls end_recording() {
  TORCH_CHECK(std::all_of(pool().begin(), pool().end(),
                          [](FakeStream* stream) {
                            const auto& own = stream->recorded();
                            return !stream->is_recorded() || own.num_joined == own.num_operations;
                          }),
              "capturing stream has unjoined work");
  recording().manner = Manner::kRunning;
  return std::move(recording().calls);
}

void give_up_recording() {
  recording().manner = Manner::kRunning;
  recording().calls = {};
}

void replay(const RecordedCalls& calls, const std::function<void()>& compute) {
  recording().calls = {};
  recording().manner = Manner::kReplaying;
  compute();
  recording().manner = Manner::kRunning;
  const auto& texts = recording().calls.texts;
  if (texts == calls.texts) return;
  const auto [one, other] = std::mismatch(texts.begin(), texts.end(), calls.texts.begin(), calls.texts.end());
  report_fault("a replay has '" + (one == texts.end() ? "nothing more" : *one) + "' in the place of '" +
               (other == calls.texts.end() ? "nothing more" : *other) + "'");
}

FakeStream::FakeStream(uint64_t number) : number_(number), thread_([this] { run(); }) {}

void FakeStream::put(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({std::move(work), fake_device().runs_late ? std::optional(num_waits_.load()) : std::nullopt});
  }
  ++num_put_;
  changed_.notify_all();
}

void FakeStream::synchronize() {
  note_wait();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty(); });
}

void FakeStream::note_wait() {
  ++num_waits_;
  num_waits_.notify_all();
}

void FakeStream::begin_operation(const std::string& what) {
  if (followed_ < g_moment) report_fault(what + " does not wait for what the caller has begun");
  ++g_moment;
  note_call(what + " on stream " + std::to_string(number_));
}

bool FakeStream::is_recorded() const {
  return recording().manner == Manner::kRecording && recorded_.recording == recording().number;
}

void FakeStream::record_operation(std::shared_ptr<void> kept) {
  ++recorded_.num_operations;
  recording().calls.kept.push_back(std::move(kept));
}

void FakeStream::run() {
  for (uint64_t number = 0;; ++number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !queue_.empty(); });
    const Entry& entry = queue_.front();  // stays where it is while others are added
    lock.unlock();
    pause(number, entry);
    entry.work();
    lock.lock();
    queue_.pop_front();
    changed_.notify_all();
  }
}

void FakeStream::pause(uint64_t number, const Entry& entry) const {
  if (entry.waits_before) num_waits_.wait(*entry.waits_before);
  const auto rank = static_cast<uint64_t>(world_rank());
  const RandomStream draws(fake_device().seed, Purpose::kTest, rank, number_);
  std::this_thread::sleep_for(draws.uniform(number) * fake_device().longest_delay);
}

}  // namespace vit_hybrid::testing

namespace vit_hybrid::comm {

using testing::fake_device;
using testing::FakeStream;
using testing::g_moment;
using testing::kCaller;

namespace {

FakeStream& fake(const DeviceStream& stream) {
  return *testing::pool()[static_cast<size_t>(stream.get().id() - 1)];
}

bool is_caller(const DeviceStream& stream) {
  return stream.get().id() == kCaller;
}

std::string text(const DeviceStream& stream) {
  return is_caller(stream) ? "the caller's stream" : "stream " + std::to_string(fake(stream).number());
}

// A record() of an event.
struct Mark {
  uint64_t recording = 0;        // in which it was made, and which alone may use it; 0: none
  uint64_t moment = 0;           // of the caller's stream
  FakeStream* stream = nullptr;  // another one
  uint64_t place = 0;            // among its work
  std::chrono::steady_clock::time_point reached_at;
  std::atomic<bool> is_reached = false;

  void reach() {
    reached_at = std::chrono::steady_clock::now();
    is_reached = true;
    is_reached.notify_all();
  }
};

// `stream` comes to wait for `mark`, one of which is recorded.
void join(const Mark& mark, const DeviceStream& stream) {
  const testing::Recording& recording = testing::recording();
  const bool goes_on = recording.manner == testing::Manner::kRecording && mark.recording == recording.number;
  TORCH_CHECK(goes_on, "dependency created on uncaptured work in another stream");
  if (is_caller(stream)) {
    ++g_moment;
    if (mark.stream != nullptr && !testing::waits_are_left_out()) mark.stream->recorded().num_joined = mark.place;
  } else if (fake_device().streams_wait) {
    auto& own = fake(stream).recorded();
    if (!fake(stream).is_recorded()) own = {recording.number, 0, std::nullopt};
    fake(stream).follow(mark.moment);
  }
}

}  // namespace

// In turn, as CUDA's.
DeviceStream DeviceStream::of_pool(c10::Device device) {
  static size_t number = 0;
  const size_t index = number++ % testing::kStreamsOfPool;
  auto& pool = testing::pool();
  if (index == pool.size()) pool.push_back(new FakeStream(index));
  return DeviceStream(c10::Stream(c10::Stream::UNSAFE, device, static_cast<c10::StreamId>(index) + 1));
}

DeviceStream DeviceStream::of_caller(c10::Device device) {
  return DeviceStream(c10::Stream(c10::Stream::UNSAFE, device, kCaller));
}

CUstream_st* DeviceStream::handle() const {
  return fake(*this).handle();
}

bool DeviceStream::is_capturing() const {
  return is_caller(*this) ? testing::recording().manner == testing::Manner::kRecording : fake(*this).is_recorded();
}

void DeviceStream::synchronize() const {
  testing::refuse_while_recorded();
  fake(*this).synchronize();
}

struct DeviceEvent::Impl {
  std::shared_ptr<Mark> mark;
};

DeviceEvent::DeviceEvent(Timing /*timing*/) : impl_(new Impl) {}

DeviceEvent::~DeviceEvent() = default;

void DeviceEvent::record(const DeviceStream& stream) {
  const auto mark = std::make_shared<Mark>();
  impl_->mark = mark;
  testing::note_call("an event on " + text(stream));
  if (stream.is_capturing()) {
    mark->recording = testing::recording().number;
    mark->moment = is_caller(stream) ? g_moment : 0;
    mark->stream = is_caller(stream) ? nullptr : &fake(stream);
    mark->place = is_caller(stream) ? 0 : fake(stream).recorded().num_operations;
  } else if (is_caller(stream)) {
    mark->moment = g_moment;
    mark->reach();
  } else {
    mark->stream = &fake(stream);
    mark->place = mark->stream->num_put();
    mark->stream->put([mark] { mark->reach(); });
  }
}

void DeviceEvent::block(const DeviceStream& stream) const {
  const auto mark = impl_->mark;
  if (mark == nullptr) return;
  testing::note_call("a wait on " + text(stream));
  if (mark->recording != 0 || stream.is_capturing()) return join(*mark, stream);
  if (is_caller(stream)) {
    ++g_moment;
    if (testing::waits_are_left_out()) return;
    if (mark->stream != nullptr) mark->stream->note_wait();
    mark->is_reached.wait(false);
  } else if (fake_device().streams_wait) {
    fake(stream).follow(mark->moment);
    if (mark->stream != nullptr) fake(stream).follow(*mark->stream, mark->place);
    fake(stream).put([mark] {
      if (mark->stream != nullptr) mark->stream->note_wait();
      mark->is_reached.wait(false);
    });
  }
}

bool DeviceEvent::query() const {
  testing::refuse_while_recorded();
  if (impl_->mark == nullptr) return true;
  TORCH_CHECK(impl_->mark->recording == 0, "operation not permitted on an event last recorded in a capturing stream");
  return impl_->mark->is_reached;
}

DeviceStatus DeviceEvent::status(c10::Device /*device*/) const {
  if (impl_->mark->recording != 0) return {DeviceStatus::Kind::kFailed, "operation not permitted on a captured event"};
  return {impl_->mark->is_reached ? DeviceStatus::Kind::kComplete : DeviceStatus::Kind::kRunning, {}};
}

double DeviceEvent::seconds_until(const DeviceEvent& later) const {
  return std::chrono::duration<double>(later.impl_->mark->reached_at - impl_->mark->reached_at).count();
}

}  // namespace vit_hybrid::comm
