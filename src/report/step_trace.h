// StepTrace: the recording that --trace asks for, from its first step to its file.
#pragma once

#include <cstdint>
#include <string>

#include "parallel/comm/clock_alignment.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/base/trace.h"
#include "src/config/trace_steps.h"

namespace vit_hybrid::train {

/// Has all ranks record the steps of --trace (docs/profiling.md), and writes what they recorded as one file. The clocks
/// of the ranks are measured against rank 0's before the first and after the last of them.
class StepTrace {
 public:
  /// `path`: of the file. `mesh` and `world`, the ranks of `mesh`, outlive it.
  StepTrace(const TraceSteps& steps, const mesh::DeviceMesh& mesh, const comm::MpiGroup& world, std::string path);

  /// Sees what is left of the steps in a run that begins after `done` and ends with `last`, both counted from the start
  /// of the run; where all are done already it says that there will be no trace. Error(kUsage) where some are beyond
  /// the end.
  void fit(int64_t done, int64_t last);

  /// Whether turn_before(step) begins or ends the recording.
  bool turns_before(int64_t step) const;
  /// Begins the recording before its first step, ends it and writes the file after its last one. To be called before
  /// each step of which turns_before() is true, when no operation is in flight. A file that cannot be written is a
  /// warning. Collective over the world.
  void turn_before(int64_t step);
  /// The run ends after `step`: the same where the recording is under way, and a warning where it has not begun.
  /// Collective over the world, when no operation is in flight.
  void end_run(int64_t step);

 private:
  void begin();
  void end(int64_t last);
  TraceSteps steps_;
  const mesh::DeviceMesh& mesh_;
  const comm::MpiGroup& world_;
  std::string path_;
  bool is_recording_ = false;
  bool is_over_ = false;
  comm::ClockOffset first_offset_;
  int64_t zero_ = 0;  // of the file, by rank 0's clock
};

}  // namespace vit_hybrid::train
