// Statistics of communication: a short list of counters behind a mutex.
#include "parallel/comm/statistics.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "parallel/comm/recorded_operations.h"

namespace vit_hybrid::comm {

namespace {

using Clock = std::chrono::steady_clock;

// Stands still while somebody waits.
class WorkingClock {
 public:
  Clock::duration now() const { return (waits_ ? since_ : Clock::now().time_since_epoch()) - waited_; }
  void set_waits(bool waits) {
    const Clock::duration time = Clock::now().time_since_epoch();
    if (waits) {
      since_ = time;
    } else {
      waited_ += time - since_;
    }
    waits_ = waits;
  }

 private:
  bool waits_ = false;
  Clock::duration since_{};
  Clock::duration waited_{};
};

struct Flights {
  int operations = 0;
  Clock::duration since{};  // by the working clock, while there is one
};

struct Counters {
  std::mutex mutex;
  std::vector<AxisStatistics> axes;
  std::map<std::string, Flights> flights;  // by axis
  WorkingClock working;
  std::vector<PhaseBlocked> phases;

  AxisStatistics& of(const std::string& axis) {
    const auto found = std::find_if(axes.begin(), axes.end(), [&](const AxisStatistics& a) { return a.axis == axis; });
    if (found != axes.end()) return *found;
    axes.push_back({});
    axes.back().axis = axis;
    return axes.back();
  }

  PhaseBlocked& in(const char* phase) {
    const auto found = std::find_if(phases.begin(), phases.end(),
                                    [&](const PhaseBlocked& p) { return std::string_view(p.phase) == phase; });
    return found != phases.end() ? *found : phases.emplace_back(PhaseBlocked{phase});
  }
};

Counters& counters() {
  static Counters* const instance = new Counters;
  return *instance;
}

struct Sources {
  std::mutex mutex;
  std::vector<const std::function<void()>*> settle;
};

Sources& sources() {
  static Sources* const instance = new Sources;
  return *instance;
}

void ask_sources() {
  const std::lock_guard lock(sources().mutex);
  for (const auto* const settle : sources().settle) {
    (*settle)();
  }
}

}  // namespace

std::vector<AxisStatistics> statistics() {
  ask_sources();
  const std::lock_guard lock(counters().mutex);
  return counters().axes;
}

std::vector<PhaseBlocked> blocked_by_phase() {
  ask_sources();
  const std::lock_guard lock(counters().mutex);
  return counters().phases;
}

PhaseBlocked total_of(const std::vector<PhaseBlocked>& phases) {
  PhaseBlocked sum;
  for (const PhaseBlocked& phase : phases) {
    sum.seconds += phase.seconds;
    sum.without_core += phase.without_core;
  }
  return sum;
}

void count_operation(const std::string& axis, int group_size, Operation operation, int64_t bytes) {
  if (auto* const recorded = RecordedOperations::collecting()) return recorded->add(axis, group_size, operation, bytes);
  const std::lock_guard lock(counters().mutex);
  AxisStatistics& statistics = counters().of(axis);
  statistics.group_size = group_size;
  OperationCount& count = statistics.counts[static_cast<size_t>(operation)];
  ++count.operations;
  count.bytes += bytes;
}

void count_bytes_between_nodes(const std::string& axis, int64_t bytes) {
  const std::lock_guard lock(counters().mutex);
  counters().of(axis).bytes_between_nodes += bytes;
}

void add_blocked_seconds(const std::string& axis, const PhaseBlocked& blocked) {
  const std::lock_guard lock(counters().mutex);
  counters().of(axis).blocked_seconds += blocked.seconds;
  PhaseBlocked& sum = counters().in(blocked.phase);
  sum.seconds += blocked.seconds;
  sum.without_core += blocked.without_core;
}

void count_in_flight(const std::string& axis, int change) {
  const std::lock_guard lock(counters().mutex);
  Flights& flights = counters().flights[axis];
  const bool was_none = flights.operations == 0;
  flights.operations += change;
  if (was_none) {
    flights.since = counters().working.now();
  } else if (flights.operations == 0) {
    counters().of(axis).hidden_seconds +=
        std::chrono::duration<double>(counters().working.now() - flights.since).count();
  }
}

WaitingTime::WaitingTime() {
  const std::lock_guard lock(counters().mutex);
  counters().working.set_waits(true);
}

WaitingTime::~WaitingTime() {
  const std::lock_guard lock(counters().mutex);
  counters().working.set_waits(false);
}

StatisticsSource::StatisticsSource(std::function<void()> settle) : settle_(std::move(settle)) {
  const std::lock_guard lock(sources().mutex);
  sources().settle.push_back(&settle_);
}

StatisticsSource::~StatisticsSource() {
  const std::lock_guard lock(sources().mutex);
  std::erase(sources().settle, &settle_);
}

}  // namespace vit_hybrid::comm
