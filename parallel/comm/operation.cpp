// Operations as notes: names, the position of the run, their text, and the slot that others read.
#include "parallel/comm/operation.h"

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "parallel/comm/node_board.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {
std::atomic<uint64_t> g_work_of_helpers{0};
std::atomic<int64_t> g_step{-1};
std::atomic<const char*> g_phase{""};

struct Entry {
  OperationNote note;
  std::function<DeviceStatus()> probe;  // of a device operation; null: of a blocked thread
  SlotClock::time_point since;
};

struct Table {
  std::mutex mutex;
  std::map<uint64_t, std::shared_ptr<const Entry>> entries;  // by id, so oldest first
  uint64_t next_id = 1;

  uint64_t add(Entry entry) {
    const std::lock_guard lock(mutex);
    entries.emplace(next_id, std::make_shared<const Entry>(std::move(entry)));
    return next_id++;
  }
  void remove(uint64_t id) {
    const std::lock_guard lock(mutex);
    entries.erase(id);
  }
  // Those of now, for as long as the caller looks at them: a probe may block, and must not stop who adds and removes.
  std::vector<std::shared_ptr<const Entry>> all() {
    const std::lock_guard lock(mutex);
    std::vector<std::shared_ptr<const Entry>> copies;
    for (const auto& [id, entry] : entries)
      copies.push_back(entry);
    return copies;
  }
};

// Never destroyed: a Work may outlive every static object when the program is aborted.
Table& table() {
  static Table* const instance = new Table;
  return *instance;
}

const BlockedScope* g_innermost = nullptr;  // of the main thread

}  // namespace

double seconds_since(SlotClock::time_point start) {
  return std::chrono::duration<double>(SlotClock::now() - start).count();
}

std::string_view operation_name(Operation operation) {
  constexpr std::array<std::string_view, kNumOperations> kNames = {"all_reduce", "reduce_scatter", "all_gather",
                                                                   "broadcast",  "exchange",       "barrier"};
  return kNames.at(static_cast<size_t>(operation));
}

RunPosition run_position() {
  return {g_step.load(), g_phase.load()};
}

void set_step(int64_t step) {
  g_step = step;
  show_position(run_position());
}

void note_work() {
  if (is_main_thread()) {
    own_slot().move();
  } else {
    g_work_of_helpers.fetch_add(1, std::memory_order_relaxed);
  }
}

void note_work_of_helpers() {
  static uint64_t known = 0;
  if (!is_main_thread()) return;
  const uint64_t now = g_work_of_helpers.load(std::memory_order_relaxed);
  if (std::exchange(known, now) != now) own_slot().move();
}

PhaseScope::PhaseScope(const char* phase, int micro_batch, int stage)
    : previous_(g_phase.exchange(phase)),
      slice_({.kind = trace::Kind::kPhase, .name = phase, .micro_batch = micro_batch, .stage = stage}) {
  show_position(run_position());
}

PhaseScope::~PhaseScope() {
  g_phase = previous_;
  show_position(run_position());
}

std::string RunPosition::text() const {
  const std::string step_text = step < 0 ? "" : str("step ", step);
  return str(step_text, step_text.empty() || *phase == '\0' ? "" : ", ", phase);
}

std::string OperationNote::text() const {
  std::string out = operation;
  if (sequence > 0) out += str(" number ", sequence);
  if (!axis.empty()) out += str(" on axis '", axis, "', ", bytes, " bytes");
  const std::string where = position.text();
  return where.empty() ? out : str(out, ", in ", where);
}

trace::Event slice_of(const OperationNote& note, trace::Kind kind) {
  return {.kind = kind,
          .name = trace::lasting(note.operation),
          .axis = trace::lasting(note.axis),
          .begin = note.traced_since,
          .step = note.position.step,
          .bytes = note.bytes,
          .number = note.sequence};
}

BlockedScope::BlockedScope(const OperationNote& note) : note_(&note), since_(SlotClock::now()) {
  if (!is_main_thread()) {
    id_ = table().add(Entry{note, nullptr, since_});
    return;
  }
  outer_ = std::exchange(g_innermost, this);
  if (trace::is_heard()) slice_.emplace(slice_of(note, trace::Kind::kWait));
  show();
}

BlockedScope::~BlockedScope() {
  if (id_ != 0) {
    table().remove(id_);
    return;
  }
  g_innermost = outer_;
  if (outer_ != nullptr) {
    outer_->show();
  } else {
    own_slot().move();
    own_slot().wait.manner.set(WaitManner::kNone);
  }
}

void BlockedScope::show() const {
  own_slot().move();
  own_slot().wait.show(*note_, looks_ ? WaitManner::kLooking : WaitManner::kBlind);
}

double BlockedScope::seconds() const {
  return seconds_since(since_);
}

void BlockedScope::look() {
  if (id_ != 0) return;
  if (!looks_) {
    looks_ = true;
    own_slot().wait.manner.set(WaitManner::kLooking);
  }
  own_slot().look();
}

void BlockedScope::awaits(const std::vector<int>& world_ranks) {
  if (id_ == 0) own_slot().wait.show_awaited(world_ranks);
}

CollectiveScope::CollectiveScope(WatchedGroup& group, const char* axis, const char* operation, int64_t bytes)
    : note_{axis, operation, bytes, 0, run_position(), group.id(), group.next_turn(operation)}, blocked_(note_) {}

DeviceOperation::DeviceOperation(OperationNote note, std::function<DeviceStatus()> probe) {
  id_ = table().add(Entry{std::move(note), std::move(probe), SlotClock::now()});
}

DeviceOperation::~DeviceOperation() {
  table().remove(id_);
}

std::optional<PendingOperation> pending_operation() {
  std::optional<PendingOperation> oldest;
  for (const auto& entry : table().all()) {
    const DeviceStatus status = entry->probe == nullptr ? DeviceStatus() : entry->probe();
    if (status.kind == DeviceStatus::Kind::kComplete) continue;
    const bool failed = status.kind == DeviceStatus::Kind::kFailed;
    if (!failed && oldest) continue;
    oldest = PendingOperation{entry->note, seconds_since(entry->since), status.error, failed, status.cause};
    if (failed) break;
  }
  return oldest;
}

}  // namespace vit_hybrid::comm
