// tune_kernels(): the kernels of a mesh of GPUs, chosen once by measuring and the same on all ranks.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "model/device_problems.h"
#include "parallel/comm/mpi_group.h"

namespace vit_hybrid::model {

/// What a run has of an earlier start of it, and whether that counts.
enum class SavedKernels { kUse, kMeasureAgain };

/// What was done, for the start-up report and the records of a run; the same on all ranks.
struct TuningReport {
  int num_measured = 0;
  int num_saved = 0;     ///< choices of the earlier start that are used
  double seconds = 0.0;  ///< of measuring
  std::string text;      ///< one line for people
};

/// Rank 0 takes the choices of `saved` (KernelTable::text() of the run that is resumed, or empty), measures the
/// problems that it has none for, and sends all to the others: afterwards tensor::kernel_table() is the same on every
/// rank. Before the first step, when parameters and optimizer state are allocated. With device the CPU it does nothing.
/// Error(kBadData), on all ranks, where `saved` is damaged. Collective over `world`.
TuningReport tune_kernels(const DeviceProblems& problems, const std::string& saved, SavedKernels use,
                          c10::Device device, const comm::MpiGroup& world);

/// What fixed sums cost: how much longer `problems` take with the chosen kernels than with the fastest, as one line;
/// empty where nothing was passed over.
std::string fixed_order_cost_text(const DeviceProblems& problems);

}  // namespace vit_hybrid::model
