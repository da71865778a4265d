// HostTask: an operation between hosts, the loop in which a process waits for it, and MessageThread, which moves
// messages beside computing.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/communicator_base.h"

namespace vit_hybrid::comm {

/// Between looks a rank spins for about a microsecond, and then leaves its core to others: it yields it, or, where the
/// ranks of the node outnumber the cores, sleeps for some ten microseconds, because yielding ranks keep each other
/// awake (eight ranks on two cores: all-reduces take 0.4 to 0.7 of the time). Where nothing moves it sleeps longer, by
/// a share of the time that it has waited: else many ranks that look for what few compute take all of the cores' time,
/// on nodes that do not know of each other (or jobs) too. What the share costs is no more than the same share of the
/// wait.
class Waiting {
 public:
  enum class Manner { kYield, kSleep };
  /// For the whole process; MpiGroup::world() sets it. Returns what it was.
  static Manner set_manner(Manner manner);

  void pause();
  /// Calls of pause() so far.
  int looks() const { return looks_; }

 private:
  using Clock = std::chrono::steady_clock;

  int looks_ = 0;
  uint64_t moves_ = 0;  // of this process when it looked last; 0: it has not
  Clock::time_point still_since_;
};

/// A state machine behind a Work. Every wait of the process advances all tasks in flight, not only
/// its own: a rank that waits on one axis must not hold up the others on another axis. Main thread
/// only (MPI_THREAD_FUNNELED), but for advance() where there is a MessageThread.
class HostTask : public NotedState {
 public:
  HostTask();
  ~HostTask() override;
  void begin() override;
  void abandon() noexcept override;

  /// Does what can be done without waiting; true once the operation is complete.
  virtual bool advance() = 0;
  /// Which ranks of the world it waits for, if that is known.
  virtual std::vector<int> awaits() const { return {}; }

  /// For progress(): advances if not yet done. An error gets the name of the operation.
  void push();
  bool done() const { return *done_; }
  /// Before begin(): nothing is done until `first`, a HostTask, is complete; null: nobody is waited for.
  void follow(const Work::State* first);

 protected:
  /// Something came of this advance(), if not yet its end: who waits may look again soon.
  static void note_move();

  void complete(BlockedScope& blocked) final;
  bool try_complete() final;

 private:
  std::shared_ptr<bool> done_ = std::make_shared<bool>(false);  // for followers, who may outlive the task
  std::shared_ptr<const bool> first_done_;                      // null: it follows nobody
  bool flies_ = false;                                          // for the statistics

  void land();
};

struct MessageTurns;

/// Advances all tasks in flight while the main thread computes (LongWork): messages move then also where the network
/// does not move them by itself. It and the main thread take turns, the main thread having its own wherever it does not
/// compute, so that one of them calls MPI at a time (MPI_THREAD_SERIALIZED) and nothing else needs a lock. Sums have
/// the bits that they have without it. What a task throws comes out of the main thread's next progress(). One a
/// process, made and ended by the main thread.
class MessageThread {
 public:
  MessageThread();
  ~MessageThread();
  MessageThread(const MessageThread&) = delete;
  MessageThread& operator=(const MessageThread&) = delete;

  /// Operations that it has brought to their end, or to an error.
  int completed() const;

 private:
  static void listen(bool begins);
  void run();

  std::unique_ptr<MessageTurns> turns_;
  std::thread thread_;
};

/// The tasks of one communicator that share a resource, in the order in which all ranks started them.
class TaskQueue {
 public:
  void enter(const HostTask& task) { tasks_.push_back(&task); }
  /// The one before; null: it is the first.
  const HostTask* before(const HostTask& task) const;
  void leave(const HostTask& task);

 private:
  std::deque<const HostTask*> tasks_;
};

/// "rank 2" or "ranks 2, 5 and 7" (at most eight are named).
std::string rank_list(const std::vector<int>& ranks);

}  // namespace vit_hybrid::comm
