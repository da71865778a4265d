// BoardObserver: counters that change, and /proc where they do not.
#include "parallel/comm/board_observer.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "parallel/comm/launcher.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

bool is_waiting(const BoardSlot& slot) {
  return slot.wait.manner.get() != WaitManner::kNone || slot.in_flight.manner.get() != WaitManner::kNone;
}

// What counts: where the main thread stands, or else what is in flight on its device.
const BoardWait& wait_of(const BoardSlot& slot) {
  const bool only_device =
      slot.wait.manner.get() == WaitManner::kNone && slot.in_flight.manner.get() != WaitManner::kNone;
  return only_device ? slot.in_flight : slot.wait;
}

}  // namespace

std::string ThreadCondition::text() const {
  switch (state) {
    case 'T':
      return "stopped by a signal";
    case 't':
      return "held by a debugger";
    case 'Z':
    case 'X':
    case '-':
      return "gone";
    case 'D':
      return "blocked by the system (a disk or a network file system)";
    case 'S':
      return "asleep or blocked in a call of the system";
    case 'R':
      return "computing";
    default:
      return "";
  }
}

ThreadCondition main_thread_condition(int pid) {
  ThreadCondition condition;
  if (kill(pid, 0) != 0 && errno == ESRCH) {
    condition.state = '-';
    return condition;
  }
  std::ifstream stat_file(str("/proc/", pid, "/task/", pid, "/stat"));
  const std::string stat((std::istreambuf_iterator<char>(stat_file)), std::istreambuf_iterator<char>());
  const size_t name_end = stat.rfind(") ");
  if (name_end != std::string::npos && name_end + 2 < stat.size()) condition.state = stat[name_end + 2];
  std::ifstream(str("/proc/", pid, "/task/", pid, "/schedstat")) >> condition.run_nanoseconds;
  std::ifstream status(str("/proc/", pid, "/task/", pid, "/status"));
  for (std::string name; status >> name;) {
    if (name == "voluntary_ctxt_switches:") status >> condition.num_rests;
  }
  return condition;
}

bool BoardObserver::is_used(size_t index) const {
  return board().slots[index].state.get() == BoardSlot::State::kRunning;
}

void BoardObserver::look(double seconds, double limit) {
  const Board& now = board();
  if (now.header->id.load() != board_id_) {
    board_id_ = now.header->id.load();
    seen_.clear();
  }
  limit_ = limit;
  since_start_ += seconds;
  seen_.resize(static_cast<size_t>(std::min(now.header->joined.load(), now.capacity)));
  for (size_t i = 0; i < seen_.size(); ++i) {
    const BoardSlot& slot = now.slots[i];
    Seen& seen = seen_[i];
    const uint64_t moves = slot.moves.get();
    const uint64_t looks = slot.looks.get();
    seen.still = moves == seen.moves ? seen.still + seconds : 0.0;
    seen.silent = moves == seen.moves && looks == seen.looks ? seen.silent + seconds : 0.0;
    seen.moves = moves;
    seen.looks = looks;
    if (seen.still < limit / 2 || !is_used(i)) {
      seen.idle = 0.0;
      seen.restless = 0.0;
      seen.condition = {};
      continue;
    }
    const ThreadCondition before = std::exchange(seen.condition, main_thread_condition(slot.pid.get()));
    seen.idle = seen.condition.run_nanoseconds == before.run_nanoseconds ? seen.idle + seconds : 0.0;
    seen.restless = seen.condition.num_rests == before.num_rests ? seen.restless + seconds : 0.0;
  }
}

bool BoardObserver::anybody_waits_longer_than(double limit) const {
  for (size_t i = 0; i < seen_.size(); ++i) {
    if (is_used(i) && seen_[i].still > limit && is_waiting(board().slots[i])) return true;
  }
  return false;
}

Standing BoardObserver::standing(size_t index, const std::string& host) const {
  const BoardSlot& slot = board().slots[index];
  const Seen& seen = seen_[index];
  const BoardWait& wait = wait_of(slot);
  const WaitManner manner = wait.manner.get();
  Standing out;
  out.rank = slot.rank.get();
  out.pid = slot.pid.get();
  out.host = host;
  out.state = manner == WaitManner::kNone ? Standing::State::kWorking : Standing::State::kWaiting;
  out.still = seen.still;
  out.silent = seen.silent;
  out.is_halted = seen.condition.is_halted();
  out.is_blind = manner != WaitManner::kLooking;
  // On a device nobody uses a processor, and where it cannot be read nobody is seen to.
  const bool is_read = manner == WaitManner::kBlind && seen.condition.run_nanoseconds > 0;
  out.is_idle = is_read && seen.idle >= std::min(1.0, limit_ / 4);
  out.is_restless = is_read && !out.is_idle && seen.restless >= std::min(1.0, limit_ / 4);
  const bool is_silent = manner == WaitManner::kNone || out.is_halted || seen.silent > std::max(1.0, limit_ / 2);
  out.condition = is_silent && (manner == WaitManner::kNone || manner == WaitManner::kLooking || out.is_halted)
                      ? seen.condition.text()
                      : "";
  if (out.is_idle || out.is_restless) out.condition = seen.condition.text();
  out.step = slot.step.get();
  const std::string phase = slot.phase.get();
  const RunPosition position{slot.step.get(), phase.c_str()};
  out.position = position.text();
  out.operation = wait.text(manner == WaitManner::kNone ? RunPosition() : position);
  out.group = wait.group.get();
  out.turn = wait.turn.get();
  out.awaits = wait.awaited_ranks();
  for (const BoardTurn& turn : slot.groups) {
    const uint64_t group = turn.group.get();
    if (group == 0) continue;
    out.turns.push_back({group, turn.turn.get(), turn.axis.get()});
    if (group == out.group) out.group_size = turn.size.get();
  }
  return out;
}

std::vector<Standing> BoardObserver::standings(const std::string& host) const {
  std::vector<Standing> out;
  for (size_t i = 0; i < seen_.size(); ++i) {
    if (is_used(i)) out.push_back(standing(i, host));
  }
  add_absent(out, host);
  return out;
}

// Processes that the launcher speaks of and that have not joined. Where all are on this node, their ranks are known.
void BoardObserver::add_absent(std::vector<Standing>& standings, const std::string& host) const {
  const auto launch = find_launch(process_environment());
  if (!launch || !is_board_of_launch() || !launch->num_here || *launch->num_here <= static_cast<int>(seen_.size()))
    return;
  std::set<int> present;
  for (const Standing& standing : standings)
    present.insert(standing.rank);
  const bool all_here = *launch->num_here == launch->num_ranks;
  int missing = *launch->num_here - static_cast<int>(seen_.size());
  for (int rank = 0; rank < launch->num_ranks && missing > 0; ++rank) {
    if (all_here && present.count(rank) > 0) continue;
    Standing absent;
    absent.rank = all_here ? rank : -1;
    absent.host = host;
    absent.state = Standing::State::kAbsent;
    absent.still = since_start_;
    absent.turns = {{kLaunchGroup, 0, 0}};
    standings.push_back(std::move(absent));
    --missing;
  }
}

}  // namespace vit_hybrid::comm
