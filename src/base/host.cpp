// Host: affinity of threads, the places of OpenMP, and the counters of /proc.
#include "src/base/host.h"

#include <fcntl.h>
#include <omp.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include "src/base/text.h"

namespace vit_hybrid {

std::string system_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();  // which, unlike iterators of the buffer, throws nothing where a read fails
  return text.str();
}

ProcessStat process_stat(int64_t process) {
  const std::string text = system_text(str("/proc/", process, "/stat"));
  // The command's name, between parentheses, may hold anything; the third column follows the last one.
  std::istringstream columns(text.substr(text.rfind(')') + 1));
  ProcessStat stat;
  columns >> stat.state >> stat.parent;
  for (int column = 4; column < 22; ++column) {
    columns.ignore(std::numeric_limits<std::streamsize>::max(), ' ');
  }
  columns >> stat.start;
  return stat;
}

std::vector<int> allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    return {};
  }
  std::set<int> processors;
  for (int number = 0; number < CPU_SETSIZE; ++number) {
    if (CPU_ISSET(number, &set)) {
      processors.insert(number);
    }
  }
  // With OMP_PROC_BIND the first thread is bound to its own place before main() begins.
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> numbers(static_cast<size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, numbers.data());
    processors.insert(numbers.begin(), numbers.end());
  }
  return {processors.begin(), processors.end()};
}

NodeUsage node_usage() {
  NodeUsage usage;
  std::ifstream processors("/proc/stat");
  std::string word;
  processors >> word;  // "cpu": of all
  // user, nice, system, idle, iowait, irq, softirq, steal; what guests took is in user.
  for (int i = 0; i < 8; ++i) {
    double ticks = 0.0;
    processors >> ticks;
    usage.all += ticks;
    usage.busy += i == 3 || i == 4 ? 0.0 : ticks;
  }
  std::ifstream memory("/proc/meminfo");
  int64_t total = 0;
  for (int64_t kib = 0; memory >> word >> kib; memory.ignore(std::numeric_limits<std::streamsize>::max(), '\n')) {
    if (word == "MemTotal:") total = kib;
    if (word == "MemAvailable:") {
      usage.memory_bytes = (total - kib) * 1024;
      break;
    }
  }
  return usage;
}

ProcessUsage process_usage() {
  ProcessUsage usage;
  rusage times{};
  if (getrusage(RUSAGE_SELF, &times) == 0) {
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    usage.cpu_seconds = seconds(times.ru_utime) + seconds(times.ru_stime);
  }
  std::ifstream pages("/proc/self/statm");
  int64_t all = 0;
  int64_t resident = 0;
  if (pages >> all >> resident) {
    usage.resident_bytes = resident * ::sysconf(_SC_PAGESIZE);
  }
  return usage;
}

namespace {

std::atomic<bool> g_counts_without_core = false;

// The second number of a thread's schedstat: nanoseconds on a run queue.
class ScheduleFile {
 public:
  ScheduleFile() : descriptor_(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
  ~ScheduleFile() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }
  ScheduleFile(const ScheduleFile&) = delete;
  ScheduleFile& operator=(const ScheduleFile&) = delete;

  double seconds() const {
    std::array<char, 96> text{};
    unsigned long long waited = 0;
    const bool is_read = descriptor_ >= 0 && ::pread(descriptor_, text.data(), text.size() - 1, 0) > 0 &&
                         std::sscanf(text.data(), "%*u %llu", &waited) == 1;
    return is_read ? 1e-9 * static_cast<double>(waited) : 0.0;
  }

 private:
  int descriptor_;
};

}  // namespace

void count_seconds_without_core() {
  g_counts_without_core = true;
}

double seconds_without_core() {
  if (!g_counts_without_core) {
    return 0.0;
  }
  static thread_local const ScheduleFile file;
  return file.seconds();
}

void use_allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int number : allowed_processors()) {
    CPU_SET(number, &set);
  }
  if (CPU_COUNT(&set) > 0) {
    sched_setaffinity(0, sizeof(set), &set);  // where it is refused the thread runs as before
  }
}

}  // namespace vit_hybrid
