// StepProfile: the steps of --profile-steps, for which profilers that wait for it capture what ranks do; PerfControl
// talks with `perf record`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/report/step_window.h"

namespace vit_hybrid::train {

/// The other end of `perf record --delay=-1 --control=fifo:COMMANDS,ANSWERS`.
class PerfControl {
 public:
  /// That which PERF_RECORD_CONTROL names, in the words of perf's option ("fifo:COMMANDS,ANSWERS"); nothing where the
  /// variable is not set. Error(kUsage) where it says something else.
  static std::optional<PerfControl> of_environment();

  /// Has perf begin to sample. Returns when it has answered, or has not for `patience` seconds. What stood in the way,
  /// as a sentence; "" for nothing.
  std::string enable(double patience);
  /// Has it stop, likewise; one that did not answer before is not waited for.
  std::string disable(double patience);

 private:
  PerfControl(std::string commands, std::string answers);
  std::string ask(const std::string& command, double patience);

  std::string commands_;
  std::string answers_;
  bool answers_in_time_ = true;
};

/// Has the profiler of each rank begin before the first and stop after the last of the steps: a perf that
/// PERF_RECORD_CONTROL names, and on GPUs whatever listens to cudaProfilerStart() (docs/profiling.md). Ranks go on
/// together when all have begun. A profiler that does not answer is a warning, and training goes on.
class StepProfile : public StepWindow {
 public:
  /// Warns where no rank has a profiler. `world` outlives it. Error(kUsage) for a variable that names none. Collective
  /// over `world`.
  StepProfile(const options::StepRange& steps, bool uses_gpu, const comm::MpiGroup& world);

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
