// Trace: what this process did when, as slices of time that are recorded while --trace asks for them, as NVTX ranges
// while a profiler listens, and as names of threads for one that notes these. With none of them, a place that would
// record costs one load and one branch.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace vit_hybrid::trace {

/// What a slice is. Those of operations and messages lie on the row of their axis, those of input, reading and
/// checkpoints on rows of their own, the rest on that of the main thread. kCopy: a batch comes to where it is computed.
enum class Kind : uint8_t { kStep, kPhase, kCopy, kOperation, kWait, kInput, kRead, kCheckpoint, kSend, kReceive };

/// A slice, or, for kSend and kReceive, a message of the exchange that has its number. Texts live as long as the
/// program (literals, or lasting()); what does not apply stays as it is here.
struct Event {
  Kind kind = Kind::kPhase;
  const char* name = "";
  const char* axis = "";  ///< of the communicator; "" for none
  int64_t begin = 0;      ///< nanoseconds, as now() gives them
  int64_t end = 0;
  int64_t step = -1;  ///< as the log counts
  int32_t micro_batch = -1;
  int32_t stage = -1;
  int64_t bytes = -1;
  uint64_t number = 0;     ///< among the operations of its communicator, from 1; 0 for none
  int32_t peer = -1;       ///< rank of the world, of a message
  bool on_device = false;  ///< of a stream of the GPU, not of a thread of the host
};

/// Nanoseconds of the monotonic clock of this process.
int64_t now();

/// The same text, for as long as the program lives.
const char* lasting(std::string_view text);

/// What a slice is called, in the file and as an NVTX range: "step 12", "data copy in 12", "forward mb 3",
/// "all_reduce data", "wait all_reduce data".
std::string slice_name(const Event& event);

/// What was recorded, in the order in which it ended.
struct Recording {
  std::vector<Event> events;
  int64_t num_dropped = 0;  ///< that came when `most_events` were there
};

/// A place among the work of a stream of a GPU.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  /// When the GPU came to it, as now() would have said. Waits for that.
  virtual int64_t time() const = 0;
};
/// Makes a mark on the stream on which the calling thread computes; null where none can be made.
using MakeMark = std::function<std::unique_ptr<DeviceMark>()>;

/// From now on this process records, at most `most_events`, for which it takes the address space at once. With
/// `make_mark` steps and phases are recorded as the GPU's slices, too.
void start_recording(size_t most_events, MakeMark make_mark = nullptr);
/// The end of it. Slices that are open now are not recorded; those of the GPU are waited for, and stand at the end.
Recording stop_recording();

namespace detail {
enum Listener : uint32_t { kRecorder = 1, kProfiler = 2, kThreadNames = 4 };
inline std::atomic<uint32_t> listeners{0};
}  // namespace detail

/// Whether somebody records or listens.
inline bool is_heard() {
  return detail::listeners.load(std::memory_order_relaxed) != 0;
}

inline bool is_recording() {
  return (detail::listeners.load(std::memory_order_relaxed) & detail::kRecorder) != 0;
}

/// Records a slice that is over; nothing while not is_recording(). Any thread.
void add(const Event& event);
/// The same of a slice of the GPU between two marks; nothing where one is null.
void add_on_device(const Event& event, std::unique_ptr<DeviceMark> begin, std::unique_ptr<DeviceMark> end);

/// Lets a profiler that has NVTX (Nsight Systems) see the slices of the main thread as ranges, where one is attached.
/// What stands in the way where one is attached and cannot: "" for nothing.
std::string attach_profiler();

/// From now on, and until then, a thread is called what it is in the middle of ("forward", "data wait"; 15 bytes of
/// it), but for waits, so that the samples of perf, which notes the names of threads, tell phases apart.
void start_naming_threads();
void stop_naming_threads();

/// A slice from its making to its end, and a range for a profiler. Those of one thread lie in each other.
class Scope {
 public:
  explicit Scope(const Event& event) {
    if (is_heard()) begin(event);
  }
  ~Scope() {
    if (heard_ != 0) end();
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  void begin(const Event& event);
  void end();

  uint32_t heard_ = 0;
  Event event_;
  std::unique_ptr<DeviceMark> mark_;
  std::array<char, 16> thread_name_;  // before, where it was changed
};

/// A range for a profiler alone: of what records its slice itself, or only begins here.
class ProfilerRange {
 public:
  /// `name` and `axis` as in an Event of kOperation.
  ProfilerRange(const char* name, const char* axis) {
    if ((detail::listeners.load(std::memory_order_relaxed) & detail::kProfiler) != 0) begin(name, axis);
  }
  ~ProfilerRange() {
    if (is_open_) end();
  }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  void begin(const char* name, const char* axis);
  static void end();

  bool is_open_ = false;
};

// Profilers of GPUs: what they capture (cudaProfilerStart), and the ranges that they show (NVTX).

/// Whether a profiler of GPUs runs this process, by the variables that those of NVIDIA set for it.
bool has_device_profiler();
/// From here, and to here; nothing happens where none is there. What stood in the way, as a sentence; "" for nothing.
/// Only where a GPU is used.
std::string start_device_capture();
std::string stop_device_capture();

// Ranges of NVTX, which profilers such as Nsight Systems show beside the kernels that a program launches.

/// Looks whether a profiler that reads NVTX is attached to this process (NVTX_INJECTION64_PATH names its library, which
/// is loaded here). What keeps one that is attached from seeing ranges, as a sentence's end; "" for nothing.
std::string open_profiler_ranges();
/// Whether one is attached and sees ranges.
bool has_profiler_ranges();

/// A range of the calling thread in the domain "vit_hybrid"; ranges of a thread lie in each other. Only where
/// has_profiler_ranges().
void begin_profiler_range(const std::string& name);
void end_profiler_range();

}  // namespace vit_hybrid::trace
