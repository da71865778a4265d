// Hdf5CrashGuard: what the watchdog is told of the file that HDF5 is in, so that a crash in it ends the whole job.
#include "data/hdf5/hdf5_crash_guard.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <mutex>

#include "parallel/comm/failure.h"
#include "parallel/comm/watchdog.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

using std::chrono::nanoseconds;

constexpr int kExitCode = static_cast<int>(ErrorClass::kBadData);
constexpr int kTimeIsUp = SIGXCPU;
constexpr std::array<int, 6> kSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, kTimeIsUp};
constexpr size_t kStackBytes = size_t{1} << 16;
constexpr time_t kSecondsToBegin = 2;  // of the reporter
constexpr time_t kSecondsToEnd = 20;   // of the process, once it has begun

std::atomic<const Hdf5CrashGuard*> g_innermost{nullptr};
static_assert(std::atomic<const Hdf5CrashGuard*>::is_always_lock_free, "the handler may use lock-free atomics only");
pid_t g_thread = 0;  // of the guards
std::array<struct sigaction, kSignals.size()> g_actions_before;
stack_t g_stack_before;
alignas(16) std::array<char, kStackBytes> g_stack;  // for the handler: what is wrong may be the stack

// By the kernel: HDF5 may have written over what the C library knows of its threads.
pid_t this_thread() {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

// --- the duty of the watchdog's guard -------------------------------------------------------------------------------

std::mutex g_time;  // of the next three, and while the signal is sent: the handler is there as long
nanoseconds g_end = nanoseconds::max();
clockid_t g_clock;  // of the processor, in the guards' thread
pthread_t g_computing;

std::atomic<int> g_signal{0};  // of the crash
std::atomic<pid_t> g_reporter{0};

nanoseconds time_computed() {
  timespec time{};
  clock_gettime(g_clock, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

void look_at_thread() {
  if (g_signal != 0) {
    g_reporter = this_thread();
    comm::report_and_abort(g_innermost.load()->line(g_signal), kExitCode);
  }
  const std::lock_guard lock(g_time);
  if (g_end == nanoseconds::max() || time_computed() < g_end) return;
  g_end = nanoseconds::max();
  pthread_kill(g_computing, kTimeIsUp);
}

// --- the handler: only what is safe in one --------------------------------------------------------------------------

void sleep_for(time_t seconds) {
  timespec left{seconds, 0};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

void restore_actions() {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &g_actions_before[i], nullptr);
  }
}

[[noreturn]] void speak_and_exit(const Hdf5CrashGuard& guard, int signal) {
  const std::string& line = guard.line(signal);
  static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
  static_cast<void>(!write(STDERR_FILENO, "\n", 1));
  _exit(kExitCode);
}

// By another process, which says nothing of the file (abort() and raise() send to their own).
bool is_sent(const siginfo_t& info) {
  return (info.si_code == SI_USER || info.si_code == SI_QUEUE || info.si_code == SI_TKILL) && info.si_pid != getpid();
}

// A message from a process whose other ranks have to be ended is more than a handler may do: the watchdog's guard does
// it. Where there is none, or it cannot, because what HDF5 left of the heap crashes it or keeps it for ever, the
// handler speaks; and so it does when another thread crashes on that heap after HDF5.
void on_crash(int signal, siginfo_t* info, void*) {
  const Hdf5CrashGuard* const guard = g_innermost.load();
  if (guard != nullptr && g_signal != 0 && this_thread() != g_thread) {
    speak_and_exit(*guard, g_signal);
  }
  if (guard == nullptr || this_thread() != g_thread || is_sent(*info)) {
    restore_actions();
    raise(signal);  // comes when this handler has returned
    return;
  }
  g_signal = signal;
  sleep_for(kSecondsToBegin);
  if (g_reporter != 0) {
    sleep_for(kSecondsToEnd);
  }
  speak_and_exit(*guard, signal);
}

void install() {
  g_thread = this_thread();
  g_computing = pthread_self();
  pthread_getcpuclockid(g_computing, &g_clock);
  stack_t stack{};
  stack.ss_sp = g_stack.data();
  stack.ss_size = g_stack.size();
  sigaltstack(&stack, &g_stack_before);
  struct sigaction action {};
  action.sa_sigaction = &on_crash;
  action.sa_flags = SA_ONSTACK | SA_SIGINFO;
  sigfillset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &action, &g_actions_before[i]);
  }
  comm::WatchdogGuard::set_duty(&look_at_thread);
}

std::string text_for(const std::string& path, const std::string& event) {
  return comm::failure_text(Error(ErrorClass::kBadData, str(path, ": its HDF5 structure is damaged: ", event),
                                  "see what h5dump -H or h5stat say of it, and copy or make it again"));
}

}  // namespace

Hdf5CrashGuard::Hdf5CrashGuard(const std::string& path, std::chrono::seconds longest)
    : crash_line_(text_for(path, "the HDF5 library crashed on it")),
      loop_line_(
          text_for(path, str("the HDF5 library came to no end with it in ", longest.count(), " s of computing"))),
      outer_(g_innermost) {
  g_innermost = this;
  if (outer_ == nullptr) install();
  const std::lock_guard lock(g_time);
  outer_end_ = g_end;
  if (longest > kNoLimit) g_end = std::min(g_end, time_computed() + longest);
}

Hdf5CrashGuard::~Hdf5CrashGuard() {
  {
    const std::lock_guard lock(g_time);
    g_end = outer_end_;
  }
  if (outer_ == nullptr) {
    restore_actions();
    sigaltstack(&g_stack_before, nullptr);
  }
  g_innermost = outer_;
}

const std::string& Hdf5CrashGuard::line(int signal) const {
  return signal == kTimeIsUp ? loop_line_ : crash_line_;
}

}  // namespace vit_hybrid::data
