// tune_host_kernel(): the kernel of the host's fp32 products, chosen by measuring and the same on all ranks.
#pragma once

#include <string>

#include "model/tuning_report.h"
#include "parallel/comm/mpi_group.h"
#include "parallel/tensor/device_kernels.h"
#include "parallel/tensor/host_kernel_timing.h"

namespace vit_hybrid::model {

/// What the kernel of the host's fp32 products is chosen for.
struct HostProblem {
  tensor::HostLayer layer;  ///< the largest of a block, of a rank and a micro-batch
  std::string machine;      ///< of rank 0: KernelTable::machine()
  /// kFixed: the usual kernel, whatever was saved, because measuring may choose another one the next time.
  tensor::SumOrder order = tensor::SumOrder::kAny;
};

/// Sets tensor::host_kernel() and tensor::kernel_table() on all ranks: the kernel of `saved` if that is of this
/// machine, else that of tensor::choose_host_kernel(), for which all ranks measure both kernels at once
/// (tensor::microseconds_of_all_ranks() of a part of the layer). Where a rank has one kernel only, all take the
/// library's; where the layer is too small for blocks, nothing is measured: the table is empty then. Error(kBadData),
/// on all ranks, where `saved` is damaged, unless `use` gives it up. Collective over `world`.
TuningReport tune_host_kernel(const HostProblem& problem, const std::string& saved, SavedKernels use,
                              const comm::MpiGroup& world);

}  // namespace vit_hybrid::model
