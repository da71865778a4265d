// What planning costs: seconds of at least so many plans of 1,024 GPUs, as `vit_hybrid plan --machine` makes them of
// all layouts, on as many threads.
//
//   bench_plan MACHINE_FILE [PLANS]
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "src/base/timer.h"
#include "src/config/load_run_config.h"
#include "src/config/run_config.h"
#include "src/machine/machine_file.h"
#include "src/plan/memory_plan.h"
#include "src/plan/step_work.h"
#include "src/plan/time_plan.h"
#include "src/report/start_report.h"

namespace vit_hybrid::train {
namespace {

constexpr int kRanks = 1024, kRanksPerNode = 8;

void plan(const RunConfig& config, const MachineFile& machine) {
  ComputeTraits compute;
  compute.device = c10::DeviceType::CUDA;
  compute.nodes.assign(kRanks / kRanksPerNode, kRanksPerNode);
  report_layout(config, config.data, compute);
  plan_least_bytes(config, plan_replica(config, config.parallel.dp - 1), kRanksPerNode, compute.device);
  plan_time(config, config.data, machine, kRanksPerNode, compute.threads);
}

void run(const std::string& path, int plans) {
  const MachineFile machine = parse_machine_file(read_local_file(path), path);
  std::vector<RunConfig> configs;
  for (int64_t batch = 6144; std::ssize(configs) < plans && batch > 0; batch -= 32) {
    for (int tp = 1; tp <= kRanks; tp *= 2) {
      for (int pp = 1; pp <= kRanks / tp; pp *= 2) {
        RunConfig config;
        config.model = model::preset("vit-h14");
        config.precision.kind = Precision::kBf16;
        config.data.kind = DataKind::kSynthetic;
        config.global_batch_size = batch;
        config.parallel.dp = kRanks / tp / pp;
        config.parallel.tp = tp;
        config.parallel.pp = pp;
        resolve(config, kRanks);
        if (problems(config, kRanks).empty()) {
          configs.push_back(std::move(config));
        }
      }
    }
  }
  const Timer timer;
  at::parallel_for(0, std::ssize(configs), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      plan(configs[static_cast<size_t>(i)], machine);
    }
  });
  std::printf("%zu plans of %d GPUs: %.3f s on %d threads\n", configs.size(), kRanks, timer.seconds(),
              at::get_num_threads());
}

}  // namespace
}  // namespace vit_hybrid::train

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: bench_plan MACHINE_FILE [PLANS]\n", stderr);
    return 64;
  }
  vit_hybrid::train::run(argv[1], argc > 2 ? std::max(1, std::atoi(argv[2])) : 1000);
}
