// Planner: layouts of one training, what they take, whether that fits and what makes it fit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/config/load_run_config.h"
#include "src/machine/machine_file.h"
#include "src/plan/memory_plan.h"
#include "src/plan/step_work.h"
#include "src/plan/time_plan.h"
#include "src/report/start_report.h"

namespace vit_hybrid::commands {

/// One layout.
struct Planned {
  train::RunConfig config;
  train::LayoutReport report;
  train::LeastBytes least_bytes;
  bool fits = true;
  std::optional<train::TimePlan> time;  ///< with a machine file

  double samples_per_second() const { return static_cast<double>(config.global_batch_size) / time->step; }
};

class Planner {
 public:
  /// On nodes of `ranks.per_node`; `memory_gib` of a rank, 0: no limit. `machine` has require_rates().
  Planner(const train::RanksOnNodes& ranks, double memory_gib, train::LoadedConfig loaded,
          std::optional<train::MachineFile> machine);

  /// Nothing where the layout is not valid; its problems are put into `problems`.
  std::optional<Planned> plan(int dp, int tp, int pp, std::vector<std::string>& problems) const;

  /// The least change of the configuration by which it fits ("fits with ..."), or what takes least.
  std::string what_fits(const Planned& given) const;

  train::ComputeTraits compute() const;
  const train::RanksOnNodes& ranks() const { return ranks_; }
  double memory_gib() const { return memory_gib_; }
  std::string memory_text() const;

 private:
  bool fits(double bytes) const { return memory_gib_ == 0.0 || bytes <= memory_gib_ * 0x1p30; }
  Planned planned(train::RunConfig config) const;

  train::RanksOnNodes ranks_;
  double memory_gib_;
  train::LoadedConfig loaded_;
  std::optional<train::MachineFile> machine_;
  train::ComputeTraits compute_;
};

/// "12.3 MiB".
std::string megabytes(double bytes);
/// Of a configuration whose --device auto stands for the host.
c10::DeviceType device_of(const train::RunConfig& config);

}  // namespace vit_hybrid::commands
