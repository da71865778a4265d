// FolderLock: a chain of lock files of which the last one counts, and a thread that renews.
#include "src/base/folder_lock.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/host.h"
#include "src/base/text.h"

namespace vit_hybrid {

namespace {

constexpr const char* kName = "run.lock";
constexpr const char* kHead = "vit_hybrid lock 1";
constexpr double kMissedRenewals = 3.0;
constexpr double kLongestRenewal = 3600.0;  // seconds; --lock-renewal allows no more
constexpr int kMostAttempts = 100;          // of one try_take(): each is a race lost to another process
constexpr int64_t kMostLockBytes = 4096;

// --- who a process is

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string link_target(const char* path) {
  char target[256];
  const ssize_t length = ::readlink(path, target, sizeof(target));
  return {target, static_cast<size_t>(std::max<ssize_t>(length, 0))};
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int64_t number_of(const std::string& text) {
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string new_token() {
  std::random_device device;
  std::string token;
  for (int i = 0; i < 4; ++i) {
    char digits[9];
    std::snprintf(digits, sizeof(digits), "%08x", device());
    token += digits;
  }
  return token;
}

enum class Life { kGone, kRuns, kUnknown };

// Of a process that this one can look at. A stopped one is not sure to go on.
Life life_of(const LockHolder& holder) {
  if (::kill(static_cast<pid_t>(holder.process), 0) != 0 && errno == ESRCH) {
    return Life::kGone;
  }
  const auto [state, parent, start] = process_stat(holder.process);
  if (state == 0) {
    return Life::kRuns;  // another user's, hidden from us
  }
  if (start != holder.start || state == 'Z' || state == 'X') {
    return Life::kGone;
  }
  return state == 'T' || state == 't' ? Life::kUnknown : Life::kRuns;
}

// --- lock files

std::string file_text(const LockHolder& holder) {
  return str(kHead, "\ntoken ", holder.token, "\nhost ", holder.host, "\nkernel ", holder.kernel, "\nprocess ",
             holder.process, "\nstart ", holder.start, "\njob ", holder.job, "\nrestart ", holder.restart, "\nrenewal ",
             holder.renewal, "\n");
}

// What is no lock file's text is a holder of which nothing is known but its time.
LockHolder parse_holder(const std::string& text) {
  LockHolder holder;
  holder.token = "unreadable";
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line != kHead) {
    return holder;
  }
  while (std::getline(lines, line)) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string key = line.substr(0, space);
    const std::string value = line.substr(std::min(space + 1, line.size()));
    if (key == "token" && value.size() == 32 && value.find_first_not_of("0123456789abcdef") == std::string::npos) {
      holder.token = value;
    } else if (key == "host") {
      holder.host = value;
    } else if (key == "kernel") {
      holder.kernel = value;
    } else if (key == "process") {
      holder.process = number_of(value);
    } else if (key == "start") {
      holder.start = number_of(value);
    } else if (key == "job") {
      holder.job = value;
    } else if (key == "restart") {
      holder.restart = number_of(value);
    } else if (key == "renewal") {
      std::from_chars(value.data(), value.data() + value.size(), holder.renewal);
    }
  }
  if (!(holder.renewal > 0.0 && holder.renewal <= kLongestRenewal)) {  // or it would count for ever, or not at all
    holder.renewal = LockHolder().renewal;
  }
  return holder;
}

// Opened anew, so that a network file system asks its server. Nothing where there is no such file.
std::optional<std::pair<LockHolder, timespec>> read_lock(const std::string& path) {
  try {
    const int descriptor = open_regular_file(path, O_RDONLY, Links::kRefuse);
    std::string text(kMostLockBytes, '\0');
    const ssize_t got = ::read(descriptor, text.data(), text.size());
    struct stat status {};
    const bool failed = got < 0 || ::fstat(descriptor, &status) != 0;
    const int error = errno;
    ::close(descriptor);
    if (failed && error == ESTALE) {
      return std::nullopt;  // replaced on the server meanwhile
    }
    if (failed) {
      throw Error(ErrorClass::kIo, str("cannot read ", path, ": ", reason(error)));
    }
    text.resize(static_cast<size_t>(got));
    return std::pair(parse_holder(text), status.st_mtim);
  } catch (const Error& error) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
      throw Error(ErrorClass::kCannotCreate, str(path, " is a folder, where the file that locks a folder belongs"),
                  "rename or remove it, or name another folder");
    }
    if (error.error_class() == ErrorClass::kMissingInput) {
      return std::nullopt;
    }
    throw;
  }
}

// Gives the file `from` the name `to` unless there is one. A server's answer may get lost on the way: the number of
// names tells what became of the file. Where there are no hard links (FAT, some of user space) the kernel's own way is
// taken.
bool publish(const std::string& from, const std::string& to) {
  if (::link(from.c_str(), to.c_str()) == 0) {
    ::unlink(from.c_str());
    return true;
  }
  int error = errno;
  struct stat status {};
  if (::stat(from.c_str(), &status) == 0 && status.st_nlink == 2) {
    ::unlink(from.c_str());
    return true;
  }
  if (error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EMLINK) {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
      return true;
    }
    error = errno;
  }
  if (error == EEXIST || error == ENOENT) {
    return false;  // ENOENT: `from` was swept away by another, who took it for an old one
  }
  throw Error(ErrorClass::kCannotCreate, str("cannot create the lock file ", to, ": ", reason(error)));
}

double seconds_between(timespec from, timespec to) {
  return static_cast<double>(to.tv_sec - from.tv_sec) + 1e-9 * static_cast<double>(to.tv_nsec - from.tv_nsec);
}

bool is_same(timespec a, timespec b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

std::string seconds_text(double seconds) {
  return fixed_text(std::max(seconds, 0.0), seconds < 10.0 ? 1 : 0) + " s";
}

// --- the locks of this process. Never destroyed: any thread may ask until the end.

struct Held {
  std::mutex mutex;
  std::vector<const FolderLock*> locks;
  std::string mark;
};

Held& held() {
  static Held* const instance = new Held;
  return *instance;
}

}  // namespace

LockHolder LockHolder::self(double renewal) {
  LockHolder holder;
  holder.token = new_token();
  holder.host = host_name();
  // Where /proc is hidden, machines must not look like one.
  const std::string boot = first_line("/proc/sys/kernel/random/boot_id");
  const std::string numbers = link_target("/proc/self/ns/pid");
  holder.kernel = boot.empty() || numbers.empty() ? "" : str(boot, "/", numbers);
  holder.process = ::getpid();
  holder.start = process_stat(holder.process).start;
  const std::string job = variable("SLURM_JOB_ID");
  holder.job = job.empty() ? "" : str(variable("SLURM_CLUSTER_NAME"), "/", job);
  holder.restart = number_of(variable("SLURM_RESTART_COUNT"));
  holder.renewal = renewal;
  return holder;
}

std::string LockHolder::text() const {
  if (host.empty()) {
    return "an unknown process";
  }
  const std::string number = job.substr(std::min(job.find('/') + 1, job.size()));
  return str("process ", process, " on ", host, job.empty() ? "" : str(", Slurm job ", number));
}

bool LockHolder::is_same_process(const LockHolder& other) const {
  return !kernel.empty() && kernel == other.kernel && process == other.process && start == other.start;
}

FolderLock::FolderLock(std::string folder, std::string what, double renewal)
    : folder_(std::move(folder)), what_(std::move(what)), self_(LockHolder::self(renewal)) {}

FolderLock::~FolderLock() {
  if (descriptor_ < 0) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wakes_.notify_all();
  if (renewal_.joinable()) {  // it may be that no thread could be started
    renewal_.join();
  }
  {
    const std::lock_guard lock(held().mutex);
    std::erase(held().locks, this);
  }
  ::close(std::exchange(descriptor_, -1));  // once: other threads open files meanwhile
  try {
    release();
  } catch (const Error&) {  // the next job finds a lock whose process has ended
  }
}

std::string FolderLock::path() const {
  return str(folder_, "/", kName);
}

std::string FolderLock::path_after(const std::string& token) const {
  return str(path(), ".after.", token);
}

// A lock file of this process under a name that nobody else uses; its time is the file system's now.
std::string FolderLock::make_candidate() {
  const std::string candidate = str(path(), ".", self_.token);
  ::unlink(candidate.c_str());
  if (descriptor_ >= 0) {
    ::close(std::exchange(descriptor_, -1));
  }
  descriptor_ = open_regular_file(candidate, O_RDWR | O_CREAT | O_EXCL, Links::kRefuse);
  const std::string text = file_text(self_);
  const bool is_written = ::write(descriptor_, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!is_written || ::fsync(descriptor_) != 0 || ::futimens(descriptor_, nullptr) != 0) {
    const int error = errno;
    ::close(std::exchange(descriptor_, -1));
    ::unlink(candidate.c_str());
    throw Error(ErrorClass::kCannotCreate, str("cannot write the lock file ", candidate, ": ", reason(error)));
  }
  return candidate;
}

std::optional<FolderLock::Found> FolderLock::find_lock() const {
  const auto lock = read_lock(path());
  if (!lock) {
    return std::nullopt;
  }
  return end_of_chain({path(), lock->first, lock->second});
}

FolderLock::Found FolderLock::end_of_chain(const Found& first) const {
  Found end = first;
  for (int i = 0; i < kMostAttempts; ++i) {
    const std::string after = path_after(end.holder.token);
    const auto next = read_lock(after);
    if (!next) {
      return end;
    }
    end = {after, next->first, next->second};
  }
  throw Error(ErrorClass::kCannotCreate, str("the lock files of ", folder_, " lead in a circle"),
              str("remove ", path(), "* where no job writes there"));
}

bool FolderLock::try_take(Doubt doubt, const std::optional<LockHolder>& loser) {
  remark_.clear();
  for (int i = 0; i < kMostAttempts; ++i) {
    const std::string candidate = make_candidate();
    struct stat status {};
    ::fstat(descriptor_, &status);
    bool is_ours = false;
    bool is_in_doubt = false;
    try {
      const auto end = find_lock();
      is_in_doubt = end && !decide(*end, status.st_mtim, doubt, loser);
      is_ours = !is_in_doubt && (end ? supersede(*end, candidate) : publish(candidate, path()));
    } catch (...) {
      ::close(std::exchange(descriptor_, -1));
      ::unlink(candidate.c_str());
      throw;
    }
    if (is_ours) {
      sweep(status.st_mtim);
      begin();
      return true;
    }
    ::close(std::exchange(descriptor_, -1));
    ::unlink(candidate.c_str());
    if (is_in_doubt) {
      return false;
    }
  }
  throw Error(ErrorClass::kCannotCreate, str("the ", what_, " ", folder_, " is taken again and again by other jobs"));
}

// Whether the folder may be taken from this holder; false where that is not known yet.
bool FolderLock::decide(const Found& end, timespec now, Doubt doubt, const std::optional<LockHolder>& loser) {
  const LockHolder& holder = end.holder;
  const double age = seconds_between(end.renewed, now);
  const bool is_visible = !holder.kernel.empty() && holder.kernel == self_.kernel;
  const Life life = is_visible ? life_of(holder) : Life::kUnknown;
  const auto gone = [&](const std::string& why) {
    remark_ = str("the ", what_, " ", folder_, " is taken over from ", holder.text(), ", ", why);
    return true;
  };
  if (life == Life::kGone) {
    return gone("which has ended");
  }
  if (!holder.job.empty() && holder.job == self_.job && holder.restart < self_.restart) {
    return gone("an earlier start of this job");
  }
  if (loser && loser->is_same_process(holder)) {
    return gone("which has lost its other folder");
  }
  const double limit = kMissedRenewals * holder.renewal;
  if (age > limit) {
    return gone(str("which has not renewed its lock for ", seconds_text(age)));
  }
  const bool has_renewed = awaited_ == holder.token && !is_same(awaited_time_, end.renewed);
  if (life == Life::kRuns || doubt == Doubt::kRefuse || has_renewed) {
    refuse(end, age);
  }
  awaited_ = holder.token;
  awaited_time_ = end.renewed;
  remark_ = str("the ", what_, " ", folder_, " belongs to ", holder.text(), ", which renewed its lock ",
                seconds_text(age), " ago; waiting whether it does so again, at most ", seconds_text(limit - age));
  return false;
}

void FolderLock::refuse(const Found& found, double age) const {
  throw Error(
      ErrorClass::kCannotCreate,
      str("the ", what_, " ", folder_, " is in use by ", found.holder.text(), ", which renewed its lock ",
          seconds_text(age), " ago (", found.file, ")"),
      str("wait for that job, or name another folder; where it is gone, its lock counts for ",
          seconds_text(kMissedRenewals * found.holder.renewal), " (a training waits for that with --resume auto)"));
}

bool FolderLock::is_lock_file(const std::string& name) {
  return name == kName || name.starts_with(str(kName, "."));
}

bool FolderLock::supersede(const Found& end, const std::string& candidate) {
  const std::string mine = path_after(end.holder.token);
  if (!publish(candidate, mine)) {
    return false;
  }
  const auto is_the_end = [&] {
    const auto now = find_lock();
    return now && now->holder.token == self_.token;
  };
  // Whoever judged long ago may have linked behind a lock that is no more.
  if (!is_the_end()) {
    ::unlink(mine.c_str());
    return false;
  }
  if (::rename(mine.c_str(), path().c_str()) != 0) {
    return false;
  }
  if (end.file != path()) {
    ::unlink(end.file.c_str());  // of one who was superseded before the rename
  }
  if (!is_the_end()) {
    return false;
  }
  loser_ = end.holder;
  return true;
}

// What others left on their way, long ago.
void FolderLock::sweep(timespec now) const {
  DIR* const folder = ::opendir(folder_.c_str());
  if (folder == nullptr) {
    return;
  }
  while (const dirent* const entry = ::readdir(folder)) {
    const std::string name = entry->d_name;
    const std::string file = str(folder_, "/", name);
    struct stat status {};
    if (name.starts_with(str(kName, ".")) && ::lstat(file.c_str(), &status) == 0 &&
        seconds_between(status.st_mtim, now) > kMissedRenewals * self_.renewal) {
      ::unlink(file.c_str());
    }
  }
  ::closedir(folder);
}

void FolderLock::begin() {
  {
    const std::lock_guard lock(held().mutex);
    held().locks.push_back(this);
  }
  renewal_ = std::thread([this] { renew(); });
}

// By the descriptor: whatever became of the name, no other's lock is renewed.
void FolderLock::renew() {
  use_allowed_processors();
  std::unique_lock lock(mutex_);
  const auto period = std::chrono::duration<double>(self_.renewal);
  while (!wakes_.wait_for(lock, period, [this] { return ends_; })) {
    ::futimens(descriptor_, nullptr);  // one that fails is one that is missed
  }
}

void FolderLock::require() const {
  const auto lock = read_lock(path());
  if (lock && lock->first.token == self_.token) {
    return;
  }
  throw Error(ErrorClass::kCannotCreate,
              str("the ", what_, " ", folder_,
                  lock ? str(" was taken over by ", lock->first.text()) : str(" has lost this job's lock, ", path()),
                  "; this process writes nothing more"),
              lock ? "it had not renewed its lock in time: it was stopped, or cut off from the file system"
                   : "another job had the folder and has ended since, or somebody removed the lock");
}

// Supersedes the own lock before it goes: where that fails, it is another's.
void FolderLock::release() {
  const std::string token = self_.token;
  self_.token = new_token();
  const std::string candidate = make_candidate();
  ::close(std::exchange(descriptor_, -1));
  if (publish(candidate, path_after(token))) {
    const auto lock = read_lock(path());
    if (lock && lock->first.token == token) {
      ::unlink(path().c_str());
    }
    ::unlink(path_after(token).c_str());
  } else {
    ::unlink(candidate.c_str());
  }
}

void require_folders() {
  Held& all = held();
  const std::lock_guard lock(all.mutex);
  for (const FolderLock* const folder : all.locks) {
    folder->require();
  }
}

bool holds_folders() {
  try {
    require_folders();
    return true;
  } catch (const Error& error) {
    return error.error_class() == ErrorClass::kIo;  // not known: whoever may throw will
  }
}

std::string job_mark() {
  const std::lock_guard lock(held().mutex);
  return held().mark;
}

void set_job_mark(const std::string& mark) {
  const std::lock_guard lock(held().mutex);
  held().mark = mark;
}

}  // namespace vit_hybrid
