// The speed of a core, looked at while others compute on it.
//
//   taskset -c CORE bench_core_speed
//
// multiplies small matrices for half a millisecond, twenty times a second, and prints for every line that it reads the
// GFLOP/s of each time since the last. A core's neighbours in a virtual machine, and its clock, change what all
// programs on it get; by how much, this tells at the same time. It takes a hundredth of the core.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <vector>

namespace {

constexpr int64_t kSide = 96;  // three of them fit into a core's own caches
constexpr double kSampleSeconds = 0.0005;
constexpr int kPauseMilliseconds = 50;

// Of this thread alone, whatever else has the core meanwhile.
double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

int main() {
  at::set_num_threads(1);
  const at::NoGradGuard guard;
  const at::Tensor a = at::full({kSide, kSide}, 0.5f), b = at::full({kSide, kSide}, 0.25f);
  at::Tensor c = at::mm(a, b);
  std::vector<double> speeds;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  for (;;) {
    at::mm_out(c, a, b);  // fetches them again
    const double begin = cpu_seconds();
    double seconds = 0.0;
    int products = 0;
    while (seconds < kSampleSeconds) {
      at::mm_out(c, a, b);
      ++products;
      seconds = cpu_seconds() - begin;
    }
    speeds.push_back(2.0 * static_cast<double>(kSide * kSide * kSide) * products / seconds / 1e9);
    if (poll(&input, 1, kPauseMilliseconds) > 0) {
      char line = 0;
      if (read(STDIN_FILENO, &line, 1) != 1) {
        return 0;
      }
      for (const double speed : speeds) {
        std::printf("%.2f ", speed);
      }
      std::puts("");
      std::fflush(stdout);
      speeds.clear();
    }
  }
}
