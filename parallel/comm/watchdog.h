// Watchdog: the thread that turns a hang into one sentence.
//
// A hang is judged by what main threads do, not by who is late at what. Each counts its moves (operations, phases,
// note_work() in long loops) and its looks (rounds of a loop in which it waits) in its slot of the node's board
// (node_board.h), and says what it waits in. This thread reads the board (board_observer.h), makes a table of Standings
// where somebody has waited too long, asks the other nodes for theirs (watch_link.h), and has find_blame() (standing.h)
// judge the table. Inside of a library nobody looks: there /proc tells who is stopped, uses no processor or never
// rests.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/board_observer.h"
#include "parallel/comm/operation.h"
#include "parallel/comm/standing.h"
#include "src/base/error.h"

namespace vit_hybrid::comm {

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
