// This machine: its name, and the processors that this process may run on.
#pragma once

#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace vit_hybrid {

/// As the system tells it, cut at 255 bytes; "host" where it tells none.
inline std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "host";
}

/// The text of a file of /proc or /sys; empty where it cannot be read, or where the process of which it tells ends just
/// then.
std::string system_text(const std::string& path);

/// What /proc tells of a process.
struct ProcessStat {
  char state = 0;  ///< letter of its main thread, such as 'R', 'T' where it was stopped, or 'Z' where it has ended
  int64_t parent = 0;
  int64_t start = 0;  ///< in ticks since the system's; a process's id comes again, both together do not
};

/// Zeros where there is none, or none that this process may look at.
ProcessStat process_stat(int64_t process);

/// Ascending numbers, as Linux has them: those that the calling thread is bound to, and all the places of OpenMP's
/// threads. Empty where the kernel does not say.
std::vector<int> allowed_processors();

/// What a machine has done and holds, by /proc; zeros where the system does not tell.
struct NodeUsage {
  double busy = 0.0;         ///< time of all processors together since the start of the system in which they worked,
  double all = 0.0;          ///< and all of it, in one unit
  int64_t memory_bytes = 0;  ///< that is not available to new programs
};
NodeUsage node_usage();

/// The same of this process.
struct ProcessUsage {
  double cpu_seconds = 0.0;  ///< of all its threads
  int64_t resident_bytes = 0;
};
ProcessUsage process_usage();

/// Seconds in which the calling thread could have run and had no core, since its start; 0 where the system does not
/// tell, and before count_seconds_without_core(). Costs less than a microsecond.
double seconds_without_core();
void count_seconds_without_core();

/// Lets the calling thread run on any of allowed_processors(). A thread begins with the binding of the one that starts
/// it, and OMP_PROC_BIND binds that one to a core: what works beside it would only have what it leaves of that core.
void use_allowed_processors();

}  // namespace vit_hybrid
