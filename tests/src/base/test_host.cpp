// Threads that are started by one that OpenMP has bound to a core; files of /proc.
#include <doctest/doctest.h>
#include <omp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "src/base/host.h"

using namespace vit_hybrid;

namespace {

int num_bound_to() {
  cpu_set_t set;
  CPU_ZERO(&set);
  REQUIRE(sched_getaffinity(0, sizeof(set), &set) == 0);
  return CPU_COUNT(&set);
}

template <class F>
int on_a_thread(const F& function) {
  int result = 0;
  std::thread([&] { result = function(); }).join();
  return result;
}

}  // namespace

// A test of its own runs this one again with OMP_PROC_BIND=close OMP_PLACES=cores.
TEST_CASE("processors: a thread that works beside the bound ones may run on all that the process has") {
  const std::vector<int> allowed = allowed_processors();
  REQUIRE_FALSE(allowed.empty());
  if (omp_get_proc_bind() != omp_proc_bind_false && omp_get_num_places() > 1) {
    CHECK(on_a_thread(num_bound_to) < static_cast<int>(allowed.size()));
  }
  CHECK(on_a_thread([] {
          use_allowed_processors();
          return num_bound_to();
        }) == static_cast<int>(allowed.size()));
}

TEST_CASE("processors: who is bound to one by other means stays there") {
  if (omp_get_num_places() > 0) {
    return;
  }
  const int first = allowed_processors().front();
  std::thread([first] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);
    use_allowed_processors();
    CHECK(allowed_processors() == std::vector<int>{first});
  }).join();
}

TEST_CASE("host: the text of a file of /proc, and nothing where it cannot be opened or read") {
  CHECK(system_text("/proc/self/stat").starts_with(std::to_string(::getpid()) + " ("));
  CHECK(system_text("/proc/self/none").empty());
  CHECK(system_text("/proc/self").empty());  // it opens, and each read of it fails, as of a process that has ended
}

TEST_CASE("host: what /proc tells of a process, whatever its name holds, and zeros where there is none") {
  std::istringstream words(system_text("/proc/self/stat"));
  std::string start;
  for (int column = 1; column <= 22; ++column) {
    words >> start;
  }
  std::array<char, 16> name{};
  REQUIRE(::prctl(PR_GET_NAME, name.data()) == 0);
  REQUIRE(::prctl(PR_SET_NAME, "a) S 1 (b") == 0);
  const ProcessStat stat = process_stat(::getpid());
  ::prctl(PR_SET_NAME, name.data());
  CHECK(stat.state == 'R');
  CHECK(stat.parent == ::getppid());
  CHECK(std::to_string(stat.start) == start);
  const ProcessStat none = process_stat(-1);
  CHECK(none.state == 0);
  CHECK(none.parent == 0);
  CHECK(none.start == 0);
}
