// StepTrace: the recording that --trace asks for, from its first step to its file.
#pragma once

#include <cstdint>
#include <string>

#include "parallel/comm/clock_alignment.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/base/trace.h"
#include "src/report/step_window.h"

namespace vit_hybrid::train {

/// Has all ranks record the steps of --trace (docs/profiling.md), and writes what they recorded as one file. The clocks
/// of the ranks are measured against rank 0's before the first and after the last of them.
class StepTrace : public StepWindow {
 public:
  /// `path`: of the file. `mesh` and `world`, the ranks of `mesh`, outlive it.
  StepTrace(const StepRange& steps, const mesh::DeviceMesh& mesh, const comm::MpiGroup& world, std::string path);

 private:
  void begin() override;
  /// A file that cannot be written is a warning.
  void end(int64_t last) override;

  const mesh::DeviceMesh& mesh_;
  const comm::MpiGroup& world_;
  std::string path_;
  comm::ClockOffset first_offset_;
  int64_t zero_ = 0;  // of the file, by rank 0's clock
};

}  // namespace vit_hybrid::train
