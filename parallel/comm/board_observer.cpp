// BoardObserver: counters that change, and /proc where they do not.
#include "parallel/comm/board_observer.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <system_error>
#include <utility>

#include "parallel/comm/launcher.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

// Nanoseconds on a processor at a stretch: the system takes it away after some milliseconds, who waits gives it away
// after microseconds.
constexpr uint64_t kLongestUse = 1'000'000;

bool is_waiting(const BoardSlot& slot) {
  return slot.wait.manner.get() != WaitManner::kNone || slot.in_flight.manner.get() != WaitManner::kNone;
}

// What counts: where the main thread stands, or else what is in flight on its device.
const BoardWait& wait_of(const BoardSlot& slot) {
  const bool only_device =
      slot.wait.manner.get() == WaitManner::kNone && slot.in_flight.manner.get() != WaitManner::kNone;
  return only_device ? slot.in_flight : slot.wait;
}

std::string content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int parent_of(const std::string& pid) {
  const std::string stat = content("/proc/" + pid + "/stat");
  const size_t name_end = stat.rfind(") ");
  return name_end == std::string::npos || name_end + 4 > stat.size() ? 0 : std::atoi(stat.c_str() + name_end + 4);
}

// Ranks and process ids of what the launcher of this process has started beside it.
std::map<int, int> launched_here() {
  std::map<int, int> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    const std::string pid = entry->path().filename();
    if (std::isdigit(static_cast<unsigned char>(pid[0])) == 0 || parent_of(pid) != getppid()) continue;
    const std::string variables = '\0' + content("/proc/" + pid + "/environ");
    const auto launch = find_launch([&](const char* name) -> std::optional<std::string> {
      const std::string key = '\0' + std::string(name) + '=';
      const size_t at = variables.find(key);
      return at == std::string::npos ? std::nullopt : std::optional(std::string(variables.c_str() + at + key.size()));
    });
    if (launch) found.emplace(launch->rank, std::atoi(pid.c_str()));
  }
  return found;
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
  const std::string stat = content(str("/proc/", pid, "/task/", pid, "/stat"));
  const size_t name_end = stat.rfind(") ");
  if (name_end != std::string::npos && name_end + 2 < stat.size()) condition.state = stat[name_end + 2];
  std::ifstream(str("/proc/", pid, "/task/", pid, "/schedstat")) >> condition.run_nanoseconds;
  std::ifstream(str("/proc/", pid, "/task/", pid, "/syscall")) >> condition.system_call;
  std::ifstream status(str("/proc/", pid, "/task/", pid, "/status"));
  for (std::string name; status >> name;) {
    uint64_t switches = 0;
    if (name.ends_with("voluntary_ctxt_switches:") && status >> switches) condition.num_switches += switches;
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
      seen.use = {};
      seen.condition = {};
      continue;
    }
    const ThreadCondition before = std::exchange(seen.condition, main_thread_condition(slot.pid.get()));
    seen.idle = seen.condition.run_nanoseconds == before.run_nanoseconds ? seen.idle + seconds : 0.0;
    if (before.run_nanoseconds == 0) continue;
    seen.use.seconds += seconds;
    seen.use.nanoseconds += seen.condition.run_nanoseconds - before.run_nanoseconds;
    seen.use.num_switches += seen.condition.num_switches - before.num_switches;
  }
}

bool BoardObserver::anybody_waits_longer_than(double limit) const {
  for (size_t i = 0; i < seen_.size(); ++i) {
    if (is_used(i) && seen_[i].still > limit && is_waiting(board().slots[i])) return true;
  }
  return false;
}

bool BoardObserver::anybody_has_moved_who_waited_longer_than(double limit) const {
  for (size_t i = 0; i < seen_.size(); ++i) {
    if (seen_[i].still > limit && board().slots[i].moves.get() != seen_[i].moves) return true;
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
  out.is_restless = is_read && !out.is_idle && seen.use.seconds >= std::min(1.0, limit_ / 4) &&
                    seen.use.nanoseconds > kLongestUse * seen.use.num_switches;
  const bool is_silent = manner == WaitManner::kNone || out.is_halted || seen.silent > std::max(1.0, limit_ / 2);
  out.condition = is_silent && (manner == WaitManner::kNone || manner == WaitManner::kLooking || out.is_halted)
                      ? seen.condition.text()
                      : "";
  if (out.is_idle || out.is_restless) out.condition = seen.condition.text();
  if (out.is_idle) out.system_call = seen.condition.system_call;
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
    out.turns.push_back({group, turn.turn.get(), turn.axis.get(), turn.made.get(), turn.made_before.get()});
    if (group == out.group) out.group_size = turn.size.get();
  }
  if (slot.moves_since() != seen.moves) out.still = 0.0;  // all that was just read may be new
  return out;
}

std::vector<Standing> BoardObserver::standings(const std::string& host) const {
  std::vector<Standing> out;
  for (size_t i = 0; i < seen_.size(); ++i) {
    const BoardSlot& slot = board().slots[i];
    if (is_used(i)) out.push_back(standing(i, host));
    if (slot.state.get() == BoardSlot::State::kEnded) out.push_back(ended_standing(slot, host));
  }
  add_absent(out, host);
  return out;
}

Standing BoardObserver::ended_standing(const BoardSlot& slot, const std::string& host) {
  Standing out;
  out.rank = slot.rank.get();
  out.pid = slot.pid.get();
  out.host = host;
  out.state = Standing::State::kEnded;
  out.turns = {{kLaunchGroup, slot.groups[0].turn.get()}};
  return out;
}

// Processes that the launcher speaks of and that have not joined, in the order of their ranks. Where all ranks are on
// this node, their ranks are known; else as far as the system tells of them.
void BoardObserver::add_absent(std::vector<Standing>& standings, const std::string& host) const {
  const auto& launch = own_launch();
  if (!launch || !is_board_of_launch() || !launch->num_here || *launch->num_here <= static_cast<int>(seen_.size()))
    return;
  std::map<int, int> absent = launched_here();
  for (int rank = 0; rank < launch->num_ranks && *launch->num_here == launch->num_ranks; ++rank)
    absent.emplace(rank, 0);
  for (const Standing& standing : standings)
    absent.erase(standing.rank);
  for (int missing = *launch->num_here - static_cast<int>(seen_.size()); missing > 0; --missing) {
    Standing found;
    if (!absent.empty()) {
      found.rank = absent.begin()->first;
      found.pid = absent.begin()->second;
      absent.erase(absent.begin());
    }
    if (found.pid > 0) found.condition = main_thread_condition(found.pid).text();
    found.host = host;
    found.state = Standing::State::kAbsent;
    found.still = since_start_;
    found.turns = {{kLaunchGroup, 0, 0}};
    standings.push_back(std::move(found));
  }
}

}  // namespace vit_hybrid::comm
