// How the processes of a job stand, and whom that blames.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vit_hybrid::comm {

/// A group of a process, and how many of its collectives it has begun.
struct GroupTurn {
  uint64_t group = 0;
  uint64_t turn = 0;
  uint64_t axis = 0;         ///< the same for all groups of an axis; 0: of none
  uint64_t made = 0;         ///< the name of the last of them, as a number; 0: not known
  uint64_t made_before = 0;  ///< and of the one before

  bool operator==(const GroupTurn&) const = default;
};

/// Of one process' main thread. A plain value: it comes from the node's board, or from another node's watchdog.
struct Standing {
  /// kAbsent: launched, and has not come to its start. kMute: its machine takes the question, and it does not answer.
  /// kEnded: it has come through MPI_Finalize.
  enum class State { kAbsent, kWorking, kWaiting, kMute, kEnded };

  int rank = -1;  ///< in the world; -1 where it is not known
  int pid = 0;
  std::string host;
  State state = State::kWorking;
  double still = 0.0;        ///< seconds since it came further
  double silent = 0.0;       ///< seconds since it was last seen to run, while it waits
  bool is_halted = false;    ///< stopped by a signal, or gone: it cannot run
  bool is_blind = false;     ///< it waits inside of a library, where nobody can see whether it runs
  bool is_idle = false;      ///< then: it has used no processor for a while
  std::string system_call;   ///< then: the number of the one in which it is blocked; "" where that is not told
  bool is_restless = false;  ///< then: it keeps its processor as long as it may, which who waits for others gives away
  std::string condition;     ///< "stopped by a signal", "asleep or blocked in a system call", ...
  int64_t step = -1;
  std::string position;     ///< "step 12, backward"
  std::string operation;    ///< that it waits in, else its last one; with `position`
  uint64_t group = 0;       ///< of what it waits in; 0: not known
  uint64_t turn = 0;        ///< 0: not a collective of all its ranks
  int group_size = 0;       ///< of `group`
  std::vector<int> awaits;  ///< world ranks, where known
  std::vector<GroupTurn> turns;

  bool operator==(const Standing&) const = default;
};

/// One line each, for another node.
std::string to_text(const std::vector<Standing>& standings);
/// What to_text() made; nothing where the text is another.
std::vector<Standing> standings_of(const std::string& text);

struct Blame {
  /// kStuck: somebody who does not wait, or who waits and does not run, has not come further for the limit. kApart: all
  /// run and wait, in operations that do not belong together. kUndelivered: all run and wait, and some for other nodes'
  /// messages in a collective that all of its ranks have begun. kUnknown: whom they wait for is not in the table.
  enum class Kind { kNone, kStuck, kApart, kUndelivered, kUnknown };
  Kind kind = Kind::kNone;
  std::vector<size_t> culprits;  ///< numbers in the table, the one whom most wait for first
  std::vector<size_t> waiters;   ///< of the culprits, the one that waits longest first
};

/// Follows the waits to their roots. Nobody is to blame as long as those for whom somebody waits (or those for whom
/// they wait) come further within `limit` seconds.
Blame find_blame(const std::vector<Standing>& table, double limit);

/// The line that says so, but for the limit; `remark`: what is known besides, or "".
std::string blame_text(const std::vector<Standing>& table, const Blame& blame, const std::string& remark);

}  // namespace vit_hybrid::comm
