// The watchdog looks at the board of its node some times a second: at counters that change, and at /proc where they do
// not; and asks the other nodes where somebody waits too long.
#include "parallel/comm/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <system_error>
#include <utility>

#include "parallel/comm/failure.h"
#include "parallel/comm/host_task.h"
#include "parallel/comm/launcher.h"
#include "parallel/comm/node_board.h"
#include "src/base/host.h"
#include "src/base/signals.h"
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

// Ranks and process ids of what the launcher of this process has started beside it.
std::map<int, int> launched_here() {
  std::map<int, int> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    const int pid = std::atoi(entry->path().filename().c_str());
    if (process_stat(pid).parent != getppid()) continue;
    const std::string variables = '\0' + system_text(str("/proc/", pid, "/environ"));
    const auto launch = find_launch([&](const char* name) -> std::optional<std::string> {
      const std::string key = '\0' + std::string(name) + '=';
      const size_t at = variables.find(key);
      return at == std::string::npos ? std::nullopt : std::optional(std::string(variables.c_str() + at + key.size()));
    });
    if (launch) found.emplace(launch->rank, pid);
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
  if (const char state = process_stat(pid).state; state != 0) condition.state = state;
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

namespace {

using Seconds = std::chrono::duration<double>;

constexpr double kDefaultLimit = 600.0;
constexpr double kShortestPeriod = 0.02;
constexpr double kLongestPeriod = 0.1;
// More than this between two looks, and this process (or the whole job) was stopped: that is nobody's fault.
constexpr double kLongestLook = 1.0;
// A node asks after those of lower numbers have had the time to, and speaks after them where it knows less than they
// may.
constexpr double kDelayPerNode = 0.05;
constexpr double kLongestDelay = 0.8;
// For those who may know more, or whose end of the job is under way.
constexpr double kPatienceWithOthers = 1.4;
constexpr double kMoment = 0.1;
constexpr double kShortestPauseBetweenAsks = 0.5;
constexpr double kPatienceWithAsker = 0.7;  // beyond the one that it has itself
constexpr double kShortestPatienceWithNodes = 1.0;
constexpr double kLongestPatienceWithNodes = 10.0;
constexpr double kShortestGuardLimit = 4.0;
constexpr double kGuardSlack = 0.5;

constexpr const char* kVariable = "VIT_HYBRID_TIMEOUT";

// Nothing where it is no time; the default where it is not set.
std::optional<double> limit_of_environment() {
  const char* const text = std::getenv(kVariable);
  if (text == nullptr) return kDefaultLimit;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (end == text || *end != '\0' || !std::isfinite(value) || value <= 0) return std::nullopt;
  return value;
}

// The option's; 0 where it is not read, or the command has none.
std::atomic<double> g_option_limit{0.0};

double environment_limit() {
  static const double value = limit_of_environment().value_or(kDefaultLimit);
  return value;
}

// "--timeout 60 s".
std::string limit_text() {
  return g_option_limit > 0 ? str("--timeout ", watch_limit(), " s") : str(watch_limit(), " s (", kVariable, ")");
}

// False once the thread is to stop.
bool sleep(const std::stop_token& stop, double seconds) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  return !std::condition_variable_any().wait_for(lock, stop, Seconds(seconds), [&] { return stop.stop_requested(); });
}

// The last look in this process, one after the other; 0: there is no watchdog.
std::atomic<uint64_t> g_look{0};
std::atomic<void (*)()> g_duty{nullptr};  // of the guard

std::string own_name() {
  const std::string place = process_place().text();
  return place.empty() ? "this process" : place;
}

// The ranks of which this node's board knows nothing, as long as nobody knows the other nodes' addresses.
std::string remark_on_elsewhere(const std::vector<Standing>& here) {
  const auto& launch = own_launch();
  std::vector<int> elsewhere(static_cast<size_t>(launch ? launch->num_ranks : 0));
  std::iota(elsewhere.begin(), elsewhere.end(), 0);
  for (const Standing& standing : here)
    std::erase(elsewhere, standing.rank);
  if (elsewhere.empty()) return "other nodes cannot be asked before MPI_Init has ended";
  return str(rank_list(elsewhere), elsewhere.size() == 1 ? ", on another node," : ", on other nodes,",
             " cannot be asked before MPI_Init has ended");
}

bool has_other_nodes() {
  if (process_place().num_nodes > 1) return true;
  const auto& launch = own_launch();
  return launch && launch->num_here && *launch->num_here < launch->num_ranks &&
         own_slot().groups[0].turn.get() <= kInitTurn;
}

}  // namespace

double watch_limit() {
  const double chosen = g_option_limit;
  return chosen > 0 ? chosen : environment_limit();
}

void set_watch_limit(double seconds) {
  VH_ASSERT(seconds > 0, str("limit ", seconds));
  g_option_limit = seconds;
}

double patience_with_nodes() {
  return std::clamp(watch_limit() / 20, kShortestPatienceWithNodes, kLongestPatienceWithNodes);
}

std::optional<Error> problem_of_environment() {
  if (limit_of_environment()) return std::nullopt;
  return Error(ErrorClass::kUsage, str("the variable ", kVariable, " is '", std::getenv(kVariable), "'"),
               "it is a number of seconds above 0");
}

Watchdog::Watchdog() {
  watch_limit();  // reads the environment, which MPI_Init changes while the threads run
  thread_ = std::jthread([this](std::stop_token stop) { watch(std::move(stop)); });
}

Watchdog::~Watchdog() = default;

void Watchdog::set_ask_job(AskJob ask_job) {
  const std::lock_guard lock(observer_mutex_);
  ask_job_ = std::move(ask_job);
}

std::vector<Standing> Watchdog::standings() {
  const std::lock_guard lock(observer_mutex_);
  return observer_.standings(process_place().host);
}

void Watchdog::watch(std::stop_token stop) {
  block_signals_in_this_thread();
  stop_ = std::move(stop);
  SlotClock::time_point last = SlotClock::now();
  while (sleep(stop_, std::clamp(watch_limit() / 20, kShortestPeriod, kLongestPeriod))) {
    ++g_look;
    const double seconds = std::min(seconds_since(last), kLongestLook);
    last = SlotClock::now();
    look(seconds);
  }
  g_look = 0;
}

void Watchdog::look(double seconds) {
  end_at_signal();
  show_pending();
  {
    const std::lock_guard lock(observer_mutex_);
    observer_.look(seconds, watch_limit());
  }
  blame_if_overdue(seconds);
}

void Watchdog::end_at_signal() {
  const int signal = signal_before_first_step();
  if (signal == 0) return;
  // Where the others cannot be asked who speaks, the launcher is most likely ending a job that has told why.
  bool can_ask = false;
  {
    const std::lock_guard lock(observer_mutex_);
    can_ask = ask_job_ != nullptr;
  }
  const bool is_late = process_place().size > 1 && board().header->joined == 1;
  if (!can_ask && (is_late || has_other_nodes())) {
    remove_board_file();
    std::_Exit(static_cast<int>(ErrorClass::kTemporary));
  }
  report_and_abort(
      str("vit_hybrid: stopped by ", signal_name(signal),
          " before the first step: nothing was trained, and nothing is to be saved; give the command again"),
      static_cast<int>(ErrorClass::kTemporary));
}

void Watchdog::show_pending() {
  const auto pending = pending_operation();
  BoardWait& shown = own_slot().in_flight;
  if (!pending) {
    shown.manner.set(WaitManner::kNone);
    return;
  }
  if (pending->failed) {
    report_and_abort(str("vit_hybrid: ", own_name(), ": ", pending->note.text(), " failed: ", pending->error,
                         "; see the messages of the network and of NCCL (NCCL_DEBUG=WARN)"),
                     static_cast<int>(ErrorClass::kIo), pending->cause);
  }
  shown.show(pending->note, WaitManner::kDevice);
}

void Watchdog::blame_if_overdue(double seconds) {
  bool is_overdue = false;
  {
    const std::lock_guard lock(observer_mutex_);
    is_overdue = observer_.anybody_waits_longer_than(watch_limit());
  }
  doubt_ = is_overdue ? doubt_ + seconds : 0.0;
  until_next_ask_ = std::max(0.0, until_next_ask_ - seconds);
  if (!is_overdue) return;
  if (const auto line = accusation())
    report_and_abort(str(*line, "; the limit is ", limit_text()), static_cast<int>(ErrorClass::kIo));
}

std::optional<std::string> Watchdog::accusation() {
  JobStandings job{standings(), ""};
  Blame blame = find_blame(job.standings, watch_limit());
  if (blame.kind == Blame::Kind::kNone) return std::nullopt;
  AskJob ask_job;
  {
    const std::lock_guard lock(observer_mutex_);
    ask_job = ask_job_;
  }
  if (ask_job == nullptr) {
    const bool may_be_elsewhere = blame.kind != Blame::Kind::kStuck && has_other_nodes();
    if (may_be_elsewhere && doubt_ < kPatienceWithOthers) return std::nullopt;
    // Where another node has told why, the launcher ends the job: some are gone before this process gets its signal.
    if (has_other_nodes() && (!sleep(stop_, kMoment) || signal_before_first_step() != 0)) return std::nullopt;
    return blame_text(job.standings, blame, may_be_elsewhere ? remark_on_elsewhere(job.standings) : "");
  }
  if (!may_ask()) return std::nullopt;
  job = ask_job(std::move(job.standings));
  blame = find_blame(job.standings, watch_limit());
  // Those who did not answer speak first, or have, and are gone.
  const bool are_others_first = blame.kind == Blame::Kind::kUnknown && !job.remark.empty() && process_place().node > 0;
  if (!sleep(stop_, are_others_first ? kPatienceWithOthers : kMoment)) return std::nullopt;
  // The answers took their time, in which what was waited for may have come: then they are about the past.
  if (blame.kind == Blame::Kind::kNone || has_moved_on()) {
    board().header->asker = 0;
    until_next_ask_ = std::max(kShortestPauseBetweenAsks, watch_limit() / 4);
    return std::nullopt;
  }
  return blame_text(job.standings, blame, job.remark);
}

bool Watchdog::has_moved_on() {
  const std::lock_guard lock(observer_mutex_);
  return observer_.anybody_has_moved_who_waited_longer_than(watch_limit());
}

// One process of a node asks, and not where one of a lower node just has, which asks for all.
bool Watchdog::may_ask() {
  BoardHeader& header = *board().header;
  const uint64_t questions = header.questions.load();
  if (std::exchange(questions_, questions) != questions) until_next_ask_ = kShortestPauseBetweenAsks;
  if (until_next_ask_ > 0 || doubt_ < std::min(process_place().node * kDelayPerNode, kLongestDelay)) return false;
  const int own = board().own + 1;
  int asker = 0;
  if (header.asker.compare_exchange_strong(asker, own) || asker == own) return true;
  // It has been stopped, where it neither ends the job nor gives up.
  return doubt_ > patience_with_nodes() + kPatienceWithAsker && header.asker.compare_exchange_strong(asker, own);
}

WatchdogGuard::WatchdogGuard() : thread_(&guard) {}

void WatchdogGuard::set_duty(void (*duty)()) {
  g_duty = duty;
}

void WatchdogGuard::guard(const std::stop_token& stop) {
  block_signals_in_this_thread();
  uint64_t look = 0;
  double silent = 0.0;
  SlotClock::time_point last = SlotClock::now();
  while (sleep(stop, kLongestPeriod)) {
    if (void (*const duty)() = g_duty) duty();
    const double seconds = std::min(seconds_since(last), kLongestLook);
    last = SlotClock::now();
    const uint64_t last_look = std::exchange(look, g_look);
    silent = look != 0 && look == last_look ? silent + seconds : 0.0;
    if (silent <= std::max(watch_limit(), kShortestGuardLimit) + kGuardSlack) continue;
    const RunPosition position = run_position();
    const std::string where = position.text();
    report_and_abort(
        str("vit_hybrid: ", own_name(), ": the watchdog itself has not moved for ", std::round(silent * 10) / 10, " s",
            where.empty() ? "" : ", in " + where, ": a call of the device's library or of the system does not return"),
        static_cast<int>(ErrorClass::kIo));
  }
}

}  // namespace vit_hybrid::comm
