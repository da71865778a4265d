// RecordedOperations: what a recording of a device's work holds of operations, for each of its replays.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "parallel/comm/operation.h"

namespace vit_hybrid::comm {

/// Operations that are part of a device's recorded work. The code that starts them has run once, while it was recorded;
/// a replay starts them again without it, so here each replay is counted and watched. Communicators that were used
/// outlive the replays. Used by one thread at a time.
class RecordedOperations {
 public:
  /// Calls `start`, which starts a replay on the caller's stream, and watches over what it holds of one axis:
  /// operations of so many bytes together.
  using Watch = std::function<void(int64_t bytes, const std::function<void()>& start)>;

  /// Calls `record`. What the process starts meanwhile, in any thread, is collected here and not counted; the back end
  /// of a device asks no event, which a recording of streams does not allow, and gives its watch.
  void collect(const std::function<void()>& record);
  /// Calls `start`, which starts all that was collected on the caller's stream, and counts it.
  void replay(const std::function<void()>& start) const;

  /// Who collects; null: operations are started as usual.
  static RecordedOperations* collecting();
  /// For count_operation().
  void add(const std::string& axis, int group_size, Operation operation, int64_t bytes);
  /// For back ends of devices; of an axis that has a watch nothing changes.
  void watch(const std::string& axis, Watch watch) { watches_.try_emplace(axis, std::move(watch)); }

 private:
  struct Collected {
    std::string axis;
    int group_size;
    Operation operation;
    int64_t bytes;
  };
  using Watches = std::map<std::string, Watch>;

  int64_t bytes_of(const std::string& axis) const;
  void start_watched(Watches::const_iterator watch, const std::function<void()>& start) const;

  std::vector<Collected> operations_;
  Watches watches_;  // by axis
};

}  // namespace vit_hybrid::comm
