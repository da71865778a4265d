// StepProfile: the steps of --profile-steps, for which profilers that wait for it capture what ranks do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/perf_control.h"
#include "src/report/step_window.h"

namespace vit_hybrid::train {

/// Has the profiler of each rank begin before the first and stop after the last of the steps: a perf that
/// PERF_RECORD_CONTROL names, and on GPUs whatever listens to cudaProfilerStart() (docs/profiling.md). Ranks go on
/// together when all have begun. A profiler that does not answer is a warning, and training goes on.
class StepProfile : public StepWindow {
 public:
  /// Warns where no rank has a profiler. `world` outlives it. Error(kUsage) for a variable that names none. Collective
  /// over `world`.
  StepProfile(const StepRange& steps, bool uses_gpu, const comm::MpiGroup& world);

 private:
  void begin() override;
  void end(int64_t last) override;
  /// Warns on behalf of the ranks that have a problem, and returns how many there are. Collective over the world.
  int64_t tell(const std::string& problem) const;

  const comm::MpiGroup& world_;
  bool uses_gpu_;
  std::optional<PerfControl> perf_;
  int64_t num_captured_ = 0;  // ranks whose profilers do what they are to
  std::string problem_;       // of this rank
};

}  // namespace vit_hybrid::train
