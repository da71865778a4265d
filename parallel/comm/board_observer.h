// BoardObserver: turns what stands on the node's board, seen again and again, into standings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/comm/node_board.h"
#include "parallel/comm/standing.h"

namespace vit_hybrid::comm {

/// How the main thread of a process is known to the system.
struct ThreadCondition {
  char state = '?';  ///< as in /proc: 'T' stopped, 'Z' ended, ...; '?' where it cannot be read, '-' no such process
  uint64_t run_nanoseconds = 0;  ///< of processor, since its start
  uint64_t num_switches = 0;     ///< how often it has left its processor, by its own will or not

  std::string system_call;  ///< number of the one that it is in; "" where that is not told

  /// "stopped by a signal"; "" where there is nothing to say.
  std::string text() const;
  bool is_halted() const { return state == 'T' || state == 't' || state == 'Z' || state == 'X' || state == '-'; }
};
ThreadCondition main_thread_condition(int pid);

/// The clocks of the processes of a board: each is as old as the last change that was seen. Seconds in which nobody
/// looked (this process was stopped, or the whole job) do not count.
class BoardObserver {
 public:
  /// `seconds` have passed since the last look; with `limit`, those that stand still for half of it are looked at in
  /// /proc.
  void look(double seconds, double limit);

  std::vector<Standing> standings(const std::string& host) const;
  /// Whether an operation of any process of the board has taken longer: then it is time to find out why.
  bool anybody_waits_longer_than(double limit) const;
  /// Whether one whom the last look has found to stand still for longer has moved since.
  bool anybody_has_moved_who_waited_longer_than(double limit) const;

 private:
  struct Seen {
    uint64_t moves = 0;
    uint64_t looks = 0;
    double still = 0.0;
    double silent = 0.0;
    double idle = 0.0;
    struct {
      double seconds = 0.0;
      uint64_t nanoseconds = 0;
      uint64_t num_switches = 0;
    } use;  // of the processor, since it counts as standing still
    ThreadCondition condition;
  };

  bool is_used(size_t index) const;
  Standing standing(size_t index, const std::string& host) const;
  static Standing ended_standing(const BoardSlot& slot, const std::string& host);
  void add_absent(std::vector<Standing>& standings, const std::string& host) const;

  std::vector<Seen> seen_;
  uint64_t board_id_ = 0;
  double limit_ = 0.0;
  double since_start_ = 0.0;
};

}  // namespace vit_hybrid::comm
