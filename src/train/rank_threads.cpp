// set_threads(): on trial first.
#include "src/train/rank_threads.h"

#include <ATen/Parallel.h>

#include <cstdlib>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/train/placement.h"

namespace vit_hybrid::train {

namespace {

// LibTorch waits for ever for a thread that the system does not start, and OpenMP ends the process. So as many as they
// will hold are first started on trial. LibTorch has a pool beside OpenMP's where it is given a number.
void try_threads(int threads, int pools, const std::string& option) {
  const int count = pools * (threads - 1);
  std::vector<std::thread> started;
  started.reserve(static_cast<size_t>(count));
  std::latch end_of_trial(1);
  std::string problem;
  try {
    while (static_cast<int>(started.size()) < count) {
      started.emplace_back([&end_of_trial] { end_of_trial.wait(); });
    }
  } catch (const std::exception& error) {
    problem = error.what();
  }
  end_of_trial.count_down();
  for (std::thread& thread : started) {
    thread.join();
  }
  if (!problem.empty()) {
    throw Error(ErrorClass::kUsage,
                str(option, threads, ", which takes ", count, " threads beside the first, but only ", started.size(),
                    " could be started: ", problem),
                "give fewer --threads, or raise the limits on threads (ulimit -u) and on memory (ulimit -v)");
  }
}

}  // namespace

bool threads_are_shared_out(int threads) {
  return threads == 0 && std::getenv("OMP_NUM_THREADS") == nullptr;
}

void set_threads(int threads, const comm::MpiGroup& world) {
  const std::string option = threads > 0 ? "--threads is " : "--threads is auto, here ";
  if (threads == 0) {
    // Gathered by all ranks: OMP_NUM_THREADS may be set for some.
    const auto shares = shared_out_threads(gather_placements(world));
    threads = threads_are_shared_out(threads) ? shares[static_cast<size_t>(world.rank())] : 0;
  }
  if (threads == 0) {  // OpenMP knows
    try_threads(at::get_num_threads(), /*pools=*/1, option);
  } else {
    try_threads(threads, /*pools=*/2, option);
    at::set_num_threads(threads);
  }
}

}  // namespace vit_hybrid::train
