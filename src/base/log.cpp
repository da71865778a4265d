// Log: one guarded state for the process, and lines at growing intervals for work that takes long.
#include "src/base/log.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/folder_lock.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid {

namespace {

constexpr const char* kEraseLine = "\r\033[K";

struct State {
  std::mutex mutex;
  bool speaks = true;
  bool keeps = true;          // no file has been opened yet: lines wait for it
  bool has_progress = false;  // the terminal's last line is a progress line
  std::string kept;
  std::ofstream file;
};

// Never destroyed: threads and exit handlers may log until the end.
State& state() {
  static State* const instance = new State;
  return *instance;
}

void print(State& log, std::FILE* stream, const std::string& text) {
  if (log.has_progress) {
    std::fputs(kEraseLine, stdout);
    std::fflush(stdout);
    log.has_progress = false;
  }
  std::fputs(text.c_str(), stream);
  std::fflush(stream);
}

void write_text(State& log, const std::string& text) {
  if (log.keeps) {
    log.kept += text;
    return;
  }
  if (!log.file.is_open()) return;
  if (!holds_folders()) {  // another job's now
    log.file.close();
    return;
  }
  log.file << text << std::flush;
  if (!log.file) {
    log.file.close();
    print(log, stderr, str("vit_hybrid: warning: writing out.log failed: ", reason(errno), "\n"));
  }
}

// Open MPI gives rank 0 a terminal of its own even where mpirun writes to a file, but never one for standard error.
bool writes_to_terminal() {
  static const bool is_terminal = isatty(STDOUT_FILENO) != 0 && isatty(STDERR_FILENO) != 0;
  return is_terminal;
}

// Asked for each line: a window changes its width.
int terminal_columns() {
  constexpr int kUsual = 80;
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  const char* const columns = std::getenv("COLUMNS");
  const int given = columns == nullptr ? 0 : std::atoi(columns);
  return given > 0 ? given : kUsual;
}

constexpr double kMostBetweenLines = 60.0;
constexpr double kBetweenShown = 1.0;

// A thread that handles no signal: those are for the main thread.
template <class Function>
std::thread quiet_thread(Function function) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(function));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

bool is_log_speaker() {
  const std::lock_guard lock(state().mutex);
  return state().speaks;
}

}  // namespace

void set_log_speaker(bool speaks) {
  const std::lock_guard lock(state().mutex);
  state().speaks = speaks;
}

void log_line(const std::string& text) {
  State& log = state();
  const std::lock_guard lock(log.mutex);
  if (!log.speaks) return;
  const std::string line = printable(text) + "\n";
  print(log, stdout, line);
  write_text(log, line);
}

void log_lines(const std::vector<std::string>& lines) {
  std::for_each(lines.begin(), lines.end(), &log_line);
}

void log_warning(const std::string& text) {
  State& log = state();
  const std::lock_guard lock(log.mutex);
  if (!log.speaks) return;
  const std::string line = "vit_hybrid: warning: " + printable(text) + "\n";
  print(log, stderr, line);
  write_text(log, line);
}

void log_to_file(const std::string& text) {
  State& log = state();
  const std::lock_guard lock(log.mutex);
  if (log.speaks) write_text(log, printable(text) + "\n");
}

void show_progress(const std::string& text) {
  State& log = state();
  const std::lock_guard lock(log.mutex);
  if (!log.speaks || !writes_to_terminal()) return;
  // A character in the last column makes some terminals wrap.
  std::fputs((kEraseLine + fitted_text(printable(text), terminal_columns() - 1)).c_str(), stdout);
  std::fflush(stdout);
  log.has_progress = true;
}

std::string fitted_text(const std::string& text, int columns) {
  std::string fitted;
  int width = 0;
  for (size_t begin = 0; begin < text.size();) {
    const auto byte = static_cast<unsigned char>(text[begin]);
    size_t end = begin + 1;
    while (byte >= 0x80 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
      ++end;
    }
    width += byte < 0x80 ? 1 : 2;
    if (width > columns) {
      break;
    }
    fitted += byte < 0x20 || byte == 0x7F ? "?" : text.substr(begin, end - begin);
    begin = end;
  }
  return fitted;
}

void open_log_file(const std::string& path, OldFile old_file) {
  State& log = state();
  const std::lock_guard lock(log.mutex);
  if (!log.speaks) return;
  require_folders();
  const int only_new = old_file == OldFile::kRefuse ? O_EXCL : 0;
  ::close(open_regular_file(path, O_WRONLY | O_CREAT | only_new));  // a FIFO would let the stream wait for a reader
  log.file.open(path, std::ios::app);
  if (!log.file) {
    throw Error(ErrorClass::kCannotCreate, str("cannot create '", path, "': ", reason(errno)));
  }
  log.keeps = false;
  write_text(log, log.kept);
  log.kept.clear();
}

void close_log_file() {
  State& log = state();
  const std::lock_guard lock(log.mutex);
  log.keeps = false;
  log.file.close();
}

Progress::Progress(std::string what, int64_t total, double quiet) : what_(std::move(what)), total_(total) {
  if (is_log_speaker()) {
    speaker_ = quiet_thread([this, quiet] { speak(quiet); });
  }
}

Progress::~Progress() {
  if (speaker_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    ended_.notify_one();
    speaker_.join();
  }
}

void Progress::speak(double quiet) {
  const bool is_shown = is_log_speaker() && writes_to_terminal();
  double next = is_shown ? kBetweenShown : quiet;
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, std::chrono::duration<double>(next - timer_.seconds()), [&] { return is_over_; })) {
    if (is_shown) {
      show_progress(text());
    } else {
      log_line(text());
    }
    const double now = timer_.seconds();
    next = now + (is_shown ? kBetweenShown : std::min(now, kMostBetweenLines));
  }
}

std::string Progress::text() const {
  const double seconds = timer_.seconds();
  const int64_t done = std::min<int64_t>(done_, total_);
  if (done == 0) {
    return str(what_, ": ", rough_duration_text(seconds), " so far");
  }
  if (done == total_) {
    return str(what_, ": 100 % done, ", rough_duration_text(seconds), " so far");
  }
  const double rest = seconds * static_cast<double>(total_ - done) / static_cast<double>(done);
  return str(what_, ": ", 100 * done / total_, " % done, ", rough_duration_text(rest), " to go");
}

}  // namespace vit_hybrid
