// Waiting: spin, then yield or sleep; MessageThread: whose turn it is.
#include "parallel/comm/host_task.h"

#include <omp.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "parallel/comm/operation.h"
#include "parallel/comm/statistics.h"
#include "src/base/autograd_node.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {
constexpr int kEagerLooks = 50;
std::atomic<Waiting::Manner> g_manner{Waiting::Manner::kYield};
uint64_t g_moves = 1;  // of all tasks; the main thread's

using std::chrono::nanoseconds;
constexpr nanoseconds kLongestNap{10'000'000};

// How long to sleep when nothing has moved for so long; 0: yield.
nanoseconds nap_after(nanoseconds still, Waiting::Manner manner) {
  if (manner == Waiting::Manner::kSleep) return std::clamp(still / 8, nanoseconds(20'000), kLongestNap);
  constexpr nanoseconds kShort{2'000'000};
  return still < kShort ? nanoseconds(0) : std::min(still / 64, kLongestNap);
}

constexpr int kLooksBetweenClocks = 100;
constexpr double kSecondsBetweenAnswers = 0.25;  // to the question whom it waits for

struct InFlight {
  std::vector<HostTask*> tasks;  // in the order of their start
  const std::thread::id thread = std::this_thread::get_id();

  void remove(const HostTask* task) { tasks.erase(std::remove(tasks.begin(), tasks.end(), task), tasks.end()); }
};

InFlight& in_flight() {
  static InFlight* const instance = [] {
    set_background_work(&progress);
    return new InFlight;
  }();
  return *instance;
}

}  // namespace

Waiting::Manner Waiting::set_manner(Manner manner) {
  return g_manner.exchange(manner);
}

void Waiting::pause() {
  if (++looks_ < kEagerLooks) return;
  const Clock::time_point now = Clock::now();
  if (moves_ != g_moves) {
    moves_ = g_moves;
    still_since_ = now;
  }
  const nanoseconds nap = nap_after(now - still_since_, g_manner.load(std::memory_order_relaxed));
  if (nap.count() == 0) {
    sched_yield();
    return;
  }
  const timespec time{0, nap.count()};
  nanosleep(&time, nullptr);
}

struct MessageTurns {
  std::mutex mutex;  // of who has the turn: the main thread has it but while it computes
  std::condition_variable changed;
  bool main_computes = false;
  bool ends = false;
  int depth = 0;  // of LongWork of the main thread
  std::exception_ptr failure;
  std::atomic<int> completed{0};
};

namespace {

MessageTurns* g_turns = nullptr;  // the main thread's

void push_all() {
  std::vector<HostTask*>& tasks = in_flight().tasks;
  for (HostTask* const task : tasks)
    task->push();
  std::erase_if(tasks, [](const HostTask* task) { return task->done(); });
}

}  // namespace

void progress() {
  if (g_turns != nullptr && g_turns->failure != nullptr) {
    std::rethrow_exception(std::exchange(g_turns->failure, nullptr));
  }
  push_all();
}

MessageThread::MessageThread() : turns_(std::make_unique<MessageTurns>()) {
  VH_ASSERT(g_turns == nullptr && std::this_thread::get_id() == in_flight().thread, "messages have a thread already");
  g_turns = turns_.get();
  turns_->mutex.lock();
  thread_ = std::thread([this] { run(); });
  LongWork::set_listener(&listen);
}

MessageThread::~MessageThread() {
  LongWork::set_listener(nullptr);
  g_turns = nullptr;
  turns_->ends = true;
  turns_->mutex.unlock();
  turns_->changed.notify_one();
  thread_.join();
}

int MessageThread::completed() const {
  return turns_->completed;
}

void MessageThread::listen(bool begins) {
  if (std::this_thread::get_id() != in_flight().thread) return;
  MessageTurns& turns = *g_turns;
  if (begins) {
    if (++turns.depth > 1 || in_flight().tasks.empty()) return;
    turns.main_computes = true;
    turns.mutex.unlock();
    turns.changed.notify_one();
  } else if (--turns.depth == 0 && turns.main_computes) {
    turns.mutex.lock();
    turns.main_computes = false;
  }
}

void MessageThread::run() {
  using std::chrono::microseconds;
  constexpr microseconds kShortestNap{100}, kLongestMessageNap{500};
  omp_set_num_threads(1);  // numbers are added by this thread alone: the others compute
  MessageTurns& turns = *turns_;
  microseconds nap = kShortestNap;
  std::unique_lock lock(turns.mutex);
  while (true) {
    turns.changed.wait(lock, [&] {
      return turns.ends || (turns.main_computes && turns.failure == nullptr && !in_flight().tasks.empty());
    });
    if (turns.ends) return;
    const uint64_t moves = g_moves;
    const size_t in_flight_before = in_flight().tasks.size();
    try {
      push_all();
    } catch (...) {
      turns.failure = std::current_exception();
      ++turns.completed;
    }
    turns.completed += static_cast<int>(in_flight_before - in_flight().tasks.size());
    nap = g_moves != moves ? kShortestNap : std::min(2 * nap, kLongestMessageNap);
    turns.changed.wait_for(lock, nap, [&] { return turns.ends; });
  }
}

HostTask::HostTask() {
  VH_ASSERT(std::this_thread::get_id() == in_flight().thread, "host tensors are communicated by one thread only");
  in_flight().tasks.push_back(this);
}

HostTask::~HostTask() {
  in_flight().remove(this);
  land();
}

void HostTask::begin() {
  flies_ = true;
  count_in_flight(note().axis, 1);
  push();
}

void HostTask::land() {
  if (std::exchange(flies_, false)) count_in_flight(note().axis, -1);
}

void HostTask::abandon() noexcept {
  in_flight().remove(this);
}

void HostTask::push() {
  if (done() || (first_done_ != nullptr && !*first_done_)) return;
  try {
    *done_ = advance();
    if (done()) {
      note_move();
      record_end();
      land();
    }
  } catch (const Error& error) {
    throw Error(error.error_class(), str(note().text(), ": ", error.message()), error.hint());
  }
}

void HostTask::note_move() {
  ++g_moves;
}

bool HostTask::try_complete() {
  if (!done()) progress();
  return done();
}

void HostTask::follow(const Work::State* first) {
  if (first == nullptr) return;
  const auto* const task = dynamic_cast<const HostTask*>(first);
  VH_ASSERT(task != nullptr, "an operation of host tensors follows one of a device");
  first_done_ = task->done_;
}

void HostTask::complete(BlockedScope& blocked) {
  double next_answer = kSecondsBetweenAnswers;
  Waiting waiting;
  while (!try_complete()) {
    waiting.pause();
    blocked.look();
    if (waiting.looks() % kLooksBetweenClocks != 0 || blocked.seconds() < next_answer) continue;
    blocked.awaits(awaits());
    next_answer = blocked.seconds() + kSecondsBetweenAnswers;
  }
}

const HostTask* TaskQueue::before(const HostTask& task) const {
  const auto place = std::find(tasks_.begin(), tasks_.end(), &task);
  return place == tasks_.begin() ? nullptr : *(place - 1);
}

void TaskQueue::leave(const HostTask& task) {
  VH_ASSERT(before(task) == nullptr, "a task left its queue out of turn");
  tasks_.pop_front();
}

std::string rank_list(const std::vector<int>& ranks) {
  constexpr size_t kMost = 8;
  if (ranks.empty()) return {};
  const size_t named = std::min(ranks.size(), kMost);
  std::string out = str(ranks.size() == 1 ? "rank " : "ranks ", ranks[0]);
  for (size_t i = 1; i < named; ++i) {
    const bool last = i + 1 == ranks.size();
    out += str(last ? " and " : ", ", ranks[i]);
  }
  return ranks.size() > named ? str(out, " and ", ranks.size() - named, " others") : out;
}

}  // namespace vit_hybrid::comm
