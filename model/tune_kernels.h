// tune_kernels(), tune_host_kernel(): the kernels of a mesh of GPUs or of processors, chosen once by measuring and the
// same on all ranks.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "model/device_problems.h"
#include "parallel/comm/mpi_group.h"
#include "parallel/tensor/device_kernels.h"
#include "parallel/tensor/host_kernel_timing.h"

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
/// rank. Before the first step, when parameters and optimizer state are allocated. Error(kBadData), on all ranks, where
/// `saved` is damaged. Collective over `world`.
TuningReport tune_kernels(const DeviceProblems& problems, const std::string& saved, SavedKernels use,
                          c10::Device device, const comm::MpiGroup& world);

/// What the kernel of the host's fp32 products is chosen for.
struct HostProblem {
  tensor::HostLayer layer;  ///< the largest of the model, of a rank and a micro-batch
  std::string machine;      ///< of rank 0: KernelTable::machine()
  /// kFixed: the usual kernel, whatever was saved, because measuring may choose another one the next time.
  tensor::SumOrder order = tensor::SumOrder::kAny;
};

/// Sets tensor::host_kernel() and tensor::kernel_table() on all ranks: the kernel of `saved` if that is of this
/// machine, else that of tensor::choose_host_kernel(), after a tenth of a second in which all ranks measure both. Where
/// a rank has one kernel only, all take the library's; where the layer is too small for blocks, nothing is measured:
/// the table is empty then. Error(kBadData), on all ranks, where `saved` is damaged and used. Collective over `world`.
TuningReport tune_host_kernel(const HostProblem& problem, const std::string& saved, SavedKernels use,
                              const comm::MpiGroup& world);

/// What fixed sums cost: how much longer `problems` take with the chosen kernels than with the fastest, as one line;
/// empty where nothing was passed over.
std::string fixed_order_cost_text(const DeviceProblems& problems);

}  // namespace vit_hybrid::model
