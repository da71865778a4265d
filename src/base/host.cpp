// Affinity of threads, and the places of OpenMP.
#include "src/base/host.h"

#include <omp.h>
#include <sched.h>

#include <set>

namespace vit_hybrid {

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
