// set_threads(): on trial first.
#include "src/machine/rank_threads.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "src/base/error.h"
#include "src/base/host.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

// Threads that take turns on a processor wait for each other at the end of every loop. Somebody who tries things out
// may have some more than processors; thousands come to no end of a step.
constexpr int kMostOfProcessor = 8;
constexpr int kMostAnywhere = 64;

void check_number(int threads, const std::string& option) {
  const auto processors = static_cast<int>(allowed_processors().size());
  const int most = std::max(kMostAnywhere, kMostOfProcessor * processors);
  if (processors > 0 && threads > most) {
    throw Error(
        ErrorClass::kUsage,
        str(option, threads, "; allowed: 1 to ", most, " where a rank may run on ", processors,
            processors == 1 ? " processor" : " processors"),
        "give fewer --threads (or OMP_NUM_THREADS), or let the rank run on more: srun --cpus-per-task=N, mpirun "
        "--map-by slot:PE=N --bind-to core");
  }
}

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

std::vector<RankPlacement> set_threads(int threads, const comm::MpiGroup& world) {
  const bool is_by_openmp = threads == 0 && std::getenv("OMP_NUM_THREADS") != nullptr;  // for some ranks, perhaps
  std::vector<RankPlacement> ranks = gather_placements(is_by_openmp ? at::get_num_threads() : threads, world);
  const auto shares = shared_out_threads(ranks);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].threads = ranks[rank].is_automatic ? shares[rank] : ranks[rank].threads;
  }
  const int own = ranks[static_cast<size_t>(world.rank())].threads;
  const std::string option = threads > 0 ? "--threads is " : "--threads is auto, here ";
  check_number(own, option);
  if (is_by_openmp) {
    try_threads(own, /*pools=*/1, option);
  } else {
    try_threads(own, /*pools=*/2, option);
    at::set_num_threads(own);
  }
  return ranks;
}

}  // namespace vit_hybrid::train
