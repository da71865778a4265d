// tune_host_kernel(): the kernel of the host's fp32 products, chosen by measuring and the same on all ranks.
#pragma once

#include <optional>
#include <string>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/kernels/gemm/device_kernels.h"
#include "src/kernels/gemm/kernel_choice.h"
#include "src/machine/host_kernel_timing.h"
#include "src/machine/tuning_report.h"

namespace vit_hybrid::train {

/// What the kernel of the host's fp32 products is chosen for.
struct HostProblem {
  HostLayer layer;      ///< the largest of a block, of a rank and a micro-batch
  std::string machine;  ///< of rank 0: KernelTable::machine()
  /// kFixed: the usual kernel, whatever was saved, because measuring may choose another one the next time.
  kernels::SumOrder order = kernels::SumOrder::kAny;
};

/// Where the choice of a machine is kept from one run to the next, so that they choose alike. For rank 0 alone.
class HostKernelStore {
 public:
  virtual ~HostKernelStore() = default;
  /// What is kept; nothing where there is none that can be used. Does not throw.
  virtual std::optional<kernels::KernelChoice> read() = 0;
  /// Keeps a choice that was just measured, and returns what counts: that one, or with kUse the one that another start
  /// has kept meanwhile. Does not throw.
  virtual kernels::KernelChoice keep(const kernels::KernelChoice& choice, SavedKernels use) = 0;
};

/// Sets kernels::host_kernel() and kernels::kernel_table() on all ranks: the kernel of `saved` if that is of this
/// machine, else what rank 0's `store` has (null: there is none), unless `use` gives both up; else that of
/// kernels::choose_host_kernel(), for which all ranks measure both kernels at once (microseconds_of_all_ranks()
/// of a part of the layer), and which the store keeps. With SumOrder::kFixed the store is left alone. Where a rank has
/// one kernel only, all take the library's; where the layer is too small for blocks, nothing is measured: the table is
/// empty then. Error(kBadData), on all ranks, where `saved` is damaged, unless `use` gives it up. Collective over
/// `world`.
TuningReport tune_host_kernel(const HostProblem& problem, const std::string& saved, SavedKernels use,
                              const comm::MpiGroup& world, HostKernelStore* store = nullptr);

}  // namespace vit_hybrid::train
