// Watchdog: the thread that turns a hang into one sentence.
//
// A hang is judged by what main threads do, not by who is late at what. Each counts its moves (operations, phases,
// note_work() in long loops) and its looks (rounds of a loop in which it waits) in its slot of the node's board
// (node_board.h), and says what it waits in. This thread reads the board (BoardObserver), makes a table of Standings
// where somebody has waited too long, asks the other nodes for theirs (watch_link.h), and has find_blame() (standing.h)
// judge the table. Inside of a library nobody looks: there /proc tells who is stopped, uses no processor or never
// rests.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/node_board.h"
#include "parallel/comm/operation.h"
#include "parallel/comm/standing.h"
#include "src/base/error.h"

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

/// Longest time in seconds that one communication may take (option --timeout). Before it is set it is
/// VIT_HYBRID_TIMEOUT, else 600.
double watch_limit();
void set_watch_limit(double seconds);
/// Seconds for which the processes of another node may take to answer: a machine that is crowded answers late. They are
/// part of what passes between the limit and the line.
double patience_with_nodes();
/// Error(kUsage) where VIT_HYBRID_TIMEOUT is no time; until that is told, the limit is 600 s.
std::optional<Error> problem_of_environment();

/// How all processes of the job stand, and what is not known: "n2 (ranks 4 to 7) did not answer: ...". `own`: how those
/// of this node stand. From the watchdog's thread.
struct JobStandings {
  std::vector<Standing> standings;
  std::string remark;
};
using AskJob = std::function<JobStandings(std::vector<Standing> own)>;

/// The process' only one, from before MPI_Init until after MPI_Finalize. Where a process of this node waits for longer
/// than watch_limit(), while nobody for whom it waits (directly, or through others that wait) comes further, it ends
/// the job with exit code 74 (kIo) and one line that names who does not move: world rank, host, process, phase and
/// operation, and who waits for it. So it does where a device reports that an operation has failed, and, with code 75,
/// at a signal before the first step (src/base/signals.h). It calls nothing of MPI but MPI_Abort.
class Watchdog {
 public:
  /// Starts the thread. join_board() comes first.
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// From now on other nodes are asked before somebody is blamed; null: there are none, or they cannot be asked.
  void set_ask_job(AskJob ask_job);
  /// How the processes of this node stand, for another node. From any thread.
  std::vector<Standing> standings();

 private:
  void watch(std::stop_token stop);
  void look(double seconds);
  void show_pending();
  void end_at_signal();
  void blame_if_overdue(double seconds);
  std::optional<std::string> accusation();
  bool has_moved_on();
  bool may_ask();

  std::mutex observer_mutex_;
  BoardObserver observer_;
  AskJob ask_job_;

  double doubt_ = 0.0;           // seconds for which somebody has waited too long
  double until_next_ask_ = 0.0;  // seconds
  uint64_t questions_ = 0;       // that were on the board when it was last looked at
  std::stop_token stop_;
  std::jthread thread_;
};

/// The thread that ends the job where the Watchdog, if there is one, hangs, and where calls of a library do that the
/// main thread is known to be in. The first thing in main(), also of commands without MPI.
class WatchdogGuard {
 public:
  WatchdogGuard();

  /// From now on it calls `duty`, too, ten times a second.
  static void set_duty(void (*duty)());

 private:
  static void guard(const std::stop_token& stop);

  std::jthread thread_;
};

}  // namespace vit_hybrid::comm
