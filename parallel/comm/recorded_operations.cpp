// Who collects, and the watches of a replay, one around the other.
#include "parallel/comm/recorded_operations.h"

#include <atomic>
#include <iterator>

#include "parallel/comm/statistics.h"

namespace vit_hybrid::comm {

namespace {

// Of the process: backward of a device's work runs in a thread of autograd's.
std::atomic<RecordedOperations*> g_collecting{nullptr};

// Also when the recording fails.
class CollectingScope {
 public:
  explicit CollectingScope(RecordedOperations* operations) : outer_(g_collecting.exchange(operations)) {}
  ~CollectingScope() { g_collecting = outer_; }
  CollectingScope(const CollectingScope&) = delete;
  CollectingScope& operator=(const CollectingScope&) = delete;

 private:
  RecordedOperations* outer_;
};

}  // namespace

RecordedOperations* RecordedOperations::collecting() {
  return g_collecting;
}

void RecordedOperations::collect(const std::function<void()>& record) {
  const CollectingScope scope(this);
  record();
}

void RecordedOperations::add(const std::string& axis, int group_size, Operation operation, int64_t bytes) {
  operations_.push_back({axis, group_size, operation, bytes});
}

void RecordedOperations::replay(const std::function<void()>& start) const {
  for (const auto& [axis, group_size, operation, bytes] : operations_) {
    count_operation(axis, group_size, operation, bytes);
  }
  start_watched(watches_.begin(), start);
}

int64_t RecordedOperations::bytes_of(const std::string& axis) const {
  int64_t sum = 0;
  for (const Collected& collected : operations_) {
    sum += collected.axis == axis ? collected.bytes : 0;
  }
  return sum;
}

void RecordedOperations::start_watched(Watches::const_iterator watch, const std::function<void()>& start) const {
  if (watch == watches_.end()) return start();
  watch->second(bytes_of(watch->first), [&] { start_watched(std::next(watch), start); });
}

}  // namespace vit_hybrid::comm
