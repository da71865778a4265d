// tune_kernels(): the kernels of a mesh of GPUs, chosen once by measuring and the same on all ranks.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/machine/device_problems.h"
#include "src/machine/tuning_report.h"

namespace vit_hybrid::train {

/// Rank 0 takes the choices of `saved` (KernelTable::text() of the run that is resumed, or empty), measures the
/// problems that it has none for, and sends all to the others: afterwards kernels::kernel_table() is the same on every
/// rank. Before the first step, when parameters and optimizer state are allocated. Error(kBadData), on all ranks, where
/// `saved` is damaged. Collective over `world`.
TuningReport tune_kernels(const DeviceProblems& problems, const std::string& saved, SavedKernels use,
                          c10::Device device, const comm::MpiGroup& world);

/// What fixed sums cost: how much longer `problems` take with the chosen kernels than with the fastest, as one line;
/// empty where nothing was passed over.
std::string fixed_order_cost_text(const DeviceProblems& problems);

}  // namespace vit_hybrid::train
