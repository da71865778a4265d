// The slot of the operation in flight: a small table behind a mutex.
#include "parallel/comm/operation_slot.h"

#include <map>
#include <mutex>
#include <utility>

namespace vit_hybrid::comm {

namespace {

struct Entry {
  const OperationNote* note;  // of a blocked thread; null for a device operation
  OperationNote own_note;     // of a device operation
  std::function<DeviceStatus()> probe;
  SlotClock::time_point since;
  std::string remark;

  const OperationNote& what() const { return note != nullptr ? *note : own_note; }
};

struct Slot {
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
Slot& slot() {
  static Slot* const instance = new Slot;
  return *instance;
}

double seconds_since(SlotClock::time_point start) {
  return std::chrono::duration<double>(SlotClock::now() - start).count();
}

std::optional<OverdueOperation> look_at(const Entry& entry, double limit_seconds) {
  const double age = seconds_since(entry.since);
  if (entry.probe == nullptr) {
    if (age <= limit_seconds) return std::nullopt;
    return OverdueOperation{entry.what(), age, entry.remark, false};
  }
  const DeviceStatus status = entry.probe();
  if (status.kind == DeviceStatus::Kind::kFailed) {
    return OverdueOperation{entry.what(), age, status.error, true, status.cause};
  }
  if (status.kind == DeviceStatus::Kind::kComplete || age <= limit_seconds) return std::nullopt;
  return OverdueOperation{entry.what(), age, {}, false};
}

}  // namespace

BlockedScope::BlockedScope(const OperationNote& note) : since_(SlotClock::now()) {
  id_ = slot().add(Entry{&note, {}, nullptr, since_, {}});
}

BlockedScope::~BlockedScope() {
  slot().remove(id_);
}

double BlockedScope::seconds() const {
  return seconds_since(since_);
}

void BlockedScope::remark(std::string text) {
  const std::lock_guard lock(slot().mutex);
  slot().entries.at(id_).remark = std::move(text);
}

DeviceOperation::DeviceOperation(OperationNote note, std::function<DeviceStatus()> probe) {
  id_ = slot().add(Entry{nullptr, std::move(note), std::move(probe), SlotClock::now(), {}});
}

DeviceOperation::~DeviceOperation() {
  slot().remove(id_);
}

std::optional<OverdueOperation> overdue_operation(double limit_seconds) {
  const std::lock_guard lock(slot().mutex);
  for (const auto& [id, entry] : slot().entries) {
    if (auto overdue = look_at(entry, limit_seconds)) return overdue;
  }
  return std::nullopt;
}

}  // namespace vit_hybrid::comm
