// TuningReport: what choosing the kernels of a run does with an earlier start's choices, and says of it.
#pragma once

#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"

namespace vit_hybrid::train {

/// What a run has of an earlier start of it, and whether that counts.
enum class SavedKernels { kUse, kMeasureAgain };

/// What was done, for the start-up report and the records of a run; the same on all ranks.
struct TuningReport {
  int num_measured = 0;
  int num_saved = 0;     ///< choices of the earlier start that are used
  double seconds = 0.0;  ///< of measuring
  std::string text;      ///< one line for people
  std::string origin;    ///< of a choice that is not from this start, before its reason: "as saved in the checkpoint; "
};

/// Makes kernels::kernel_table() one of `machine` with those choices of `saved` (KernelTable::text(), or empty) for
/// `problems` that count. Why the others do not, for the end of TuningReport::text: ", the saved ones were for X".
/// Error(kBadData) where `saved` is damaged and used.
std::string begin_kernel_table(const std::string& machine, const std::vector<std::string>& problems,
                               const std::string& saved, SavedKernels use);

/// Gives all ranks rank 0's report and kernels::kernel_table(). Collective over `world`.
void share_kernels(TuningReport& report, const comm::MpiGroup& world);

}  // namespace vit_hybrid::train
