// Failure: one message, from one rank, and MPI_Abort.
#include "parallel/comm/failure.h"

#include <c10/util/Exception.h>
#include <mpi.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>
#include <typeinfo>
#include <utility>

#include "parallel/comm/agreement.h"
#include "parallel/comm/node_board.h"
#include "parallel/comm/operation.h"
#include "src/base/device/gpu_survey.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::comm {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTurnDelayPerNode{100};
constexpr milliseconds kLongestTurnDelay{3000};
constexpr milliseconds kPatienceOfTheSilent{3000};
constexpr milliseconds kPatienceWithHeir{500};
constexpr milliseconds kPatience{15000};
constexpr milliseconds kPatienceBeforeAbort{2000};
constexpr milliseconds kPatienceWithFinalize{2000};
constexpr milliseconds kPatienceOfReader{500};
constexpr milliseconds kPauseOfReader{2};
constexpr size_t kLongestMessage = 16384;  // bytes: a page or two

std::atomic<bool> g_failing{false};

std::atomic<const ProcessPlace*> g_place{nullptr};

// Never destroyed: a job may fail while static objects are.
MemoryAdvice& memory_advice() {
  static MemoryAdvice* const instance = new MemoryAdvice;
  return *instance;
}

template <class T>
struct Guarded {
  std::mutex mutex;
  T value;

  T get() {
    const std::lock_guard lock(mutex);
    return value;
  }
  void set(T new_value) {
    const std::lock_guard lock(mutex);
    value = std::move(new_value);
  }
};

Guarded<std::function<void()>>& before_abort() {
  static auto* const instance = new Guarded<std::function<void()>>;
  return *instance;
}

Guarded<JobVoice>& job_voice() {
  static auto* const instance = new Guarded<JobVoice>;
  return *instance;
}

// In a thread of its own, which is left alone where it hangs; in this one where the system starts none.
void run_before_abort() {
  const std::function<void()> action = before_abort().get();
  if (action == nullptr) return;
  std::promise<void> promise;
  std::future<void> done = promise.get_future();
  try {
    std::thread([action, promise = std::move(promise)]() mutable {
      action();
      promise.set_value();
    }).detach();
    done.wait_for(kPatienceBeforeAbort);
  } catch (const std::system_error&) {
    action();
  }
}

bool claim() {
  if (!claim_board(process_place().rank)) return false;
  const JobVoice voice = job_voice().get();
  if (voice.claim == nullptr || voice.claim()) return true;
  board().header->told = 1;  // by another node
  return false;
}

// Of those that have waited for `speaker` (0: for one that has not even claimed to be it) in vain, which was stopped or
// killed before it could speak, one does.
bool inherit_claim(int32_t speaker) {
  BoardHeader& header = *board().header;
  return header.claim.compare_exchange_strong(speaker, process_place().rank + 1);
}

// A launcher may stop reading what a process has written once its job is aborted: MPICH's did, now and then. So the
// message must have left the pipe by then.
void wait_until_read() {
  struct stat status {};
  if (fstat(STDERR_FILENO, &status) != 0 || !S_ISFIFO(status.st_mode)) return;
  int unread = 0;
  for (auto left = kPatienceOfReader; left.count() > 0; left -= kPauseOfReader) {
    if (ioctl(STDERR_FILENO, FIONREAD, &unread) != 0 || unread == 0) return;
    std::this_thread::sleep_for(kPauseOfReader);
  }
}

void print(const std::string& line) {
  const char* const erase_progress_line = isatty(STDERR_FILENO) != 0 ? "\r\033[K" : "";
  const std::string text = erase_progress_line + printable(line, kLongestMessage) + "\n";
  // One write(), so that nothing gets between its parts.
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    pollfd event{STDERR_FILENO, POLLOUT, 0};  // another program may have made what it shares with us non-blocking
    if (written < 0 && errno == EAGAIN && poll(&event, 1, static_cast<int>(kPatienceOfReader.count())) > 0) continue;
    if (written <= 0) return;
    done += static_cast<size_t>(written);
  }
  wait_until_read();
}

// Whatever hangs from here on (MPI_Abort, a file system, a lock), the process ends.
void end_process_later(int exit_code, milliseconds patience) {
  try {
    std::thread([exit_code, patience] {
      std::this_thread::sleep_for(patience);
      std::_Exit(exit_code);
    }).detach();
  } catch (const std::system_error&) {
    alarm(std::chrono::duration_cast<std::chrono::seconds>(patience).count());  // no thread: SIGALRM ends it
  }
}

[[noreturn]] void end_job(int exit_code) {
  std::fflush(nullptr);
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  remove_board_file();
  // Alone, nobody else is to be ended, and perhaps there is no launcher that keeps MPI_Abort's banner away. But MPI is,
  // or its folder in /tmp stays.
  const bool alone = process_place().size == 1;
  const bool runs = initialized != 0 && finalized == 0;
  if (runs && !alone) MPI_Abort(MPI_COMM_WORLD, exit_code);
  if (runs && alone && is_main_thread()) {
    end_process_later(exit_code, kPatienceWithFinalize);
    MPI_Finalize();
  }
  std::_Exit(exit_code);
}

// Who claims to speak: at once, after those that may know the cause, or not at all, unless nobody does.
enum class Turn { kFirst, kLast, kNever };

Turn turn_of(Cause cause) {
  return cause == Cause::kOwn ? Turn::kFirst : Turn::kLast;
}

Turn turn_of(const std::exception& exception) {
  if (const auto* const agreed = dynamic_cast<const AgreedError*>(&exception)) {
    return agreed->speaks() ? Turn::kFirst : Turn::kNever;
  }
  return turn_of(dynamic_cast<const LostPeerError*>(&exception) == nullptr ? Cause::kOwn : Cause::kLostPeer);
}

void tell(const std::string& line) {
  print(line);
  board().header->told = 1;
  log_to_file(line);
  if (const JobVoice voice = job_voice().get(); voice.silence != nullptr) voice.silence();
}

// The speaker ends the job meanwhile.
void wait_for_speaker(const std::string& line) {
  const BoardHeader& header = *board().header;
  const int32_t speaker = header.claim;
  std::this_thread::sleep_for(kPatienceOfTheSilent);
  if (header.told != 0) return;
  if (inherit_claim(speaker)) return tell(line);
  std::this_thread::sleep_for(kPatienceWithHeir);
}

[[noreturn]] void speak_and_end(const std::string& line, int exit_code, Turn turn) {
  if (g_failing.exchange(true)) {
    // Another thread of this process is already at it.
    std::this_thread::sleep_for(2 * kPatience);
    std::_Exit(exit_code);
  }
  end_process_later(exit_code, kPatience);
  if (turn == Turn::kLast) std::this_thread::sleep_for(kPatienceOfTheSilent);  // whoever knows more ends the job
  if (turn != Turn::kNever)
    std::this_thread::sleep_for(std::min(process_place().node * kTurnDelayPerNode, kLongestTurnDelay));
  if (turn != Turn::kNever && claim()) {
    tell(line);
  } else {
    wait_for_speaker(line);
  }
  run_before_abort();
  end_job(exit_code);
}

// What std::thread throws where the system starts no more of them. Errors of files and streams are derived from it.
bool is_thread_failure(const std::exception& exception) {
  return typeid(exception) == typeid(std::system_error) &&
         static_cast<const std::system_error&>(exception).code() == std::errc::resource_unavailable_try_again;
}

std::string memory_hint(const MemoryFailure& failure) {
  const std::string advice = memory_advice() != nullptr ? memory_advice()(failure) : "";
  return advice.empty() ? "use a smaller micro-batch or more ranks" : advice;
}

std::string bracketed(const std::string& a, const std::string& b) {
  const std::string inner = str(a, a.empty() || b.empty() ? "" : ", ", b);
  return inner.empty() ? "" : "[" + inner + "]";
}

// Text of a file may hold line breaks: no line after the first begins as a message does.
std::string indented(std::string text) {
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1)) {
    if (text.compare(at + 1, 2, "  ") != 0) text.insert(at + 1, "  ");
  }
  return text;
}

}  // namespace

std::string ProcessPlace::text() const {
  return size == 1 ? "" : str("rank ", rank, " of ", size, " on ", host);
}

const ProcessPlace& process_place() {
  static const ProcessPlace* const none = new ProcessPlace;
  const ProcessPlace* const known = g_place.load();
  return known != nullptr ? *known : *none;
}

void set_process_place(ProcessPlace new_place) {
  g_place = new ProcessPlace(std::move(new_place));  // the old one stays: other threads may look at it
}

void set_job_voice(JobVoice voice) {
  job_voice().set(std::move(voice));
}

void set_memory_advice(MemoryAdvice advice) {
  memory_advice() = std::move(advice);
}

void set_before_abort(std::function<void()> action) {
  before_abort().set(std::move(action));
}

Error as_error(const std::exception& exception) {
  if (const auto* const error = dynamic_cast<const Error*>(&exception)) return *error;
  if (is_thread_failure(exception)) {
    return Error(ErrorClass::kUsage, str("a thread could not be started: ", exception.what()),
                 "give fewer --threads or --io-threads, or raise the limits on threads (ulimit -u) and on memory "
                 "(ulimit -v)");
  }
  const auto* const torch = dynamic_cast<const c10::Error*>(&exception);
  const std::string text = torch != nullptr ? torch->what_without_backtrace() : exception.what();
  const auto says = [&](const char* words) { return text.find(words) != std::string::npos; };
  if (!is_missing_memory(exception)) return Error(ErrorClass::kInternal, text);
  const bool is_known = says("allocate memory") || says("Tried to allocate");
  const MemoryFailure failure = is_known ? MemoryTracker::last_failure().value_or(MemoryFailure()) : MemoryFailure();
  if (failure.bytes == 0) return memory_error(text);
  return Error(ErrorClass::kUsage, memory_failure_text(failure, device_total_bytes(failure.device)),
               memory_hint(failure));
}

Error memory_error(const std::string& text) {
  MemoryFailure failure;  // ATen's allocators know of none: only what is held
  failure.held = MemoryTracker::report();
  return Error(ErrorClass::kUsage, str("out of memory: ", text.substr(0, text.find('\n'))), memory_hint(failure));
}

std::string failure_text(const std::exception& exception) {
  const Error error = as_error(exception);
  const auto* const agreed = dynamic_cast<const AgreedError*>(&exception);
  const std::string where =
      bracketed(agreed != nullptr ? agreed->place() : process_place().text(), run_position().text());
  const std::string message = indented(error.message());
  const bool one_line = message.find('\n') == std::string::npos;
  const std::string separator = where.empty() && error.hint().empty() ? "" : one_line ? " " : "\n  ";
  std::string out = str("vit_hybrid: ", message);
  if (!where.empty()) out += separator + where;
  if (!error.hint().empty()) out += (where.empty() && !one_line ? "\n  " : "; ") + error.hint();
  return out;
}

void report_and_abort(const std::exception& exception) {
  speak_and_end(failure_text(exception), as_error(exception).exit_code(), turn_of(exception));
}

void report_and_abort(const std::string& line, int exit_code, Cause cause) {
  speak_and_end(line, exit_code, turn_of(cause));
}

}  // namespace vit_hybrid::comm
