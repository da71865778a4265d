// BlockedScope: a chain of scopes on the main thread, whose innermost is on the board; a table behind a mutex for the
// rest.
#include "parallel/comm/operation_slot.h"

#include <map>
#include <mutex>
#include <utility>

#include "parallel/comm/node_board.h"

namespace vit_hybrid::comm {

namespace {

struct Entry {
  const OperationNote* note;  // of a blocked thread; null for a device operation
  OperationNote own_note;     // of a device operation
  std::function<DeviceStatus()> probe;
  SlotClock::time_point since;

  const OperationNote& what() const { return note != nullptr ? *note : own_note; }
};

struct Table {
  std::mutex mutex;
  std::map<uint64_t, Entry> entries;  // by id, so oldest first
  uint64_t next_id = 1;

  uint64_t add(Entry entry) {
    const std::lock_guard lock(mutex);
    entries.emplace(next_id, std::move(entry));
    return next_id++;
  }
  void remove(uint64_t id) {
    const std::lock_guard lock(mutex);
    entries.erase(id);
  }
};

// Never destroyed: a Work may outlive every static object when the program is aborted.
Table& table() {
  static Table* const instance = new Table;
  return *instance;
}

const BlockedScope* g_innermost = nullptr;  // of the main thread

double seconds_since(SlotClock::time_point start) {
  return std::chrono::duration<double>(SlotClock::now() - start).count();
}

}  // namespace

BlockedScope::BlockedScope(const OperationNote& note) : note_(&note), since_(SlotClock::now()) {
  if (!is_main_thread()) {
    id_ = table().add(Entry{&note, {}, nullptr, since_});
    return;
  }
  outer_ = std::exchange(g_innermost, this);
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
  id_ = table().add(Entry{nullptr, std::move(note), std::move(probe), SlotClock::now()});
}

DeviceOperation::~DeviceOperation() {
  table().remove(id_);
}

std::optional<PendingOperation> pending_operation() {
  const std::lock_guard lock(table().mutex);
  std::optional<PendingOperation> oldest;
  for (const auto& [id, entry] : table().entries) {
    const DeviceStatus status = entry.probe == nullptr ? DeviceStatus() : entry.probe();
    if (status.kind == DeviceStatus::Kind::kComplete) continue;
    const bool failed = status.kind == DeviceStatus::Kind::kFailed;
    if (!failed && oldest) continue;
    oldest = PendingOperation{entry.what(), seconds_since(entry.since), status.error, failed, status.cause};
    if (failed) break;
  }
  return oldest;
}

}  // namespace vit_hybrid::comm
