// StepWindow: some of the steps of a run, for which something is switched on, from the first of them to the last;
// StepProfile: those of --profile-steps, for which profilers that wait for it capture what ranks do; PerfControl talks
// with `perf record`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/config/option_table.h"

namespace vit_hybrid::train {

/// What --trace and --profile-steps have in common: when they begin and end in a run that may go on after an earlier
/// one, be stopped, or be too short.
class StepWindow {
 public:
  virtual ~StepWindow() = default;
  StepWindow(const StepWindow&) = delete;
  StepWindow& operator=(const StepWindow&) = delete;

  /// Sees what is left of the steps in a run that begins after `done` and ends with `last`, both counted from the start
  /// of the run; where all are done already it says that there will be nothing. Error(kUsage) where some are beyond the
  /// end.
  void fit(int64_t done, int64_t last);

  /// Whether turn_before(step) begins or ends it.
  bool turns_before(int64_t step) const;
  /// Begins it before its first step, ends it after its last one. To be called before each step of which turns_before()
  /// is true, when no operation is in flight. Collective over the world.
  void turn_before(int64_t step);
  /// The run ends after `step`: ends it too where it is under way, and a warning where it has not begun. Collective
  /// over the world, when no operation is in flight.
  void end_run(int64_t step);

 protected:
  /// `option`: as it was given, with the steps; `what`: "trace".
  StepWindow(const options::StepRange& steps, std::string option, std::string what);

  /// "trace of steps 10 to 12".
  std::string title(int64_t last) const;
  int64_t first() const { return steps_.first; }

 private:
  virtual void begin() = 0;
  /// `last`: the last step that was done of them.
  virtual void end(int64_t last) = 0;

  options::StepRange steps_;
  std::string option_;
  std::string what_;
  bool is_open_ = false;
  bool is_over_ = false;
};

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
