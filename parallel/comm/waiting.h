// Waiting: what a rank does between two looks at something that another process must do.
#pragma once

namespace vit_hybrid::comm {

/// Between looks a rank spins for about a microsecond, and then leaves its core to others: it yields it, or, where the
/// ranks of the node outnumber the cores, sleeps for some ten microseconds, because yielding ranks keep each other
/// awake (eight ranks on two cores: all-reduces take 0.4 to 0.7 of the time).
class Waiting {
 public:
  enum class Manner { kYield, kSleep };
  /// For the whole process; MpiGroup::world() sets it.
  static void set_manner(Manner manner);

  void pause();
  /// Calls of pause() so far.
  int looks() const { return looks_; }

 private:
  int looks_ = 0;
};

}  // namespace vit_hybrid::comm
