// Collectives of host tensors, of ordinary ones and of those that the ranks of a node share, beside the rate at which
// all ranks together read and write an array in place.
//
//   mpirun -n RANKS bench_collectives [ROUNDS]
//
// GB/s of the tensor whose sum, halves of a sum, or whole is wanted (medians of ROUNDS (15), each of the slowest rank),
// and per cent of what memory allows: a sum of S bytes in n ranks has each read and written once, 2 S bytes a rank; its
// halves S + S / n. Tensors of up to a few MiB stay in caches, and may be faster than that.
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi/mpi_session.h"
#include "src/base/shareable_tensor.h"
#include "src/base/timer.h"

namespace {

using namespace vit_hybrid;

constexpr int64_t kLargest = int64_t{64} << 20;

// Seconds of the slowest rank, the median of the rounds.
double median_seconds(const comm::MpiGroup& world, int rounds, int calls, const std::function<void()>& run) {
  constexpr double kNano = 1e9;
  std::vector<double> seconds;
  run();
  for (int round = 0; round < rounds; ++round) {
    world.barrier();
    const Timer timer;
    for (int call = 0; call < calls; ++call) {
      run();
    }
    seconds.push_back(static_cast<double>(world.max(std::llround(kNano * timer.seconds()))) / kNano / calls);
  }
  std::nth_element(seconds.begin(), seconds.begin() + rounds / 2, seconds.end());
  return seconds[static_cast<size_t>(rounds / 2)];
}

void run(const comm::MpiGroup& world, int rounds) {
  const auto group = comm::make_communicator("data", world.split(0), at::kCPU);
  const int ranks = group->size();
  const at::Tensor ordinary = at::full({kLargest / 4}, 1.0, at::kFloat);
  const at::Tensor shared = shareable_zeros(kLargest / 4, at::kFloat);
  group->share(shared);
  const double scaling = median_seconds(world, rounds, 1, [&] { ordinary.mul_(1.0); });
  const double rate = 2.0 * kLargest * ranks / scaling;  // of all ranks
  if (world.rank() == 0) {
    std::printf("%d ranks read and write in place %.1f GB/s together\n", ranks, rate / 1e9);
    std::printf("%18s %24s %24s %24s\n", "KiB", "all_reduce", "reduce_scatter", "all_gather");
  }
  for (const at::Tensor& memory : {ordinary, shared})
    for (int64_t bytes = int64_t{64} << 10; bytes <= kLargest; bytes *= 4) {
      const at::Tensor tensor = memory.narrow(0, 0, bytes / 4);
      const int64_t part = bytes / 4 / ranks;
      const at::Tensor own = tensor.narrow(0, group->rank() * part, part), all = tensor.narrow(0, 0, part * ranks);
      const int calls = static_cast<int>(std::max<int64_t>(1, (int64_t{4} << 20) / bytes));
      const std::vector<std::pair<std::function<comm::Work()>, double>> collectives = {
          {[&] { return group->all_reduce(tensor, comm::ReduceOp::kSum); }, 2.0},
          {[&] { return group->reduce_scatter(own, all, comm::ReduceOp::kSum); }, 1.0 + 1.0 / ranks},
          {[&] { return group->all_gather(all, own); }, 1.0 + 1.0 / ranks}};
      if (world.rank() == 0)
        std::printf("%8s %9lld", memory.is_same(shared) ? "shared" : "", static_cast<long long>(bytes >> 10));
      for (const auto& [collective, moved] : collectives) {
        tensor.fill_(1.0 / ranks);
        const auto whole = [&start = collective] { start().wait(); };
        const double gained = static_cast<double>(bytes) / median_seconds(world, rounds, calls, whole);
        if (world.rank() == 0) {
          std::printf(" %10.2f GB/s (%5.1f %%)", gained / 1e9, 100.0 * gained * moved * ranks / rate);
        }
      }
      if (world.rank() == 0) std::printf("\n");
    }
}

}  // namespace

int main(int argc, char** argv) {
  comm::MpiSession session(&argc, &argv);
  run(session.world(), argc > 1 ? std::atoi(argv[1]) : 15);
  session.finalize();
  return 0;
}
