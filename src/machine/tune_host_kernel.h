// Autotuning of the host's kernel of fp32 products.
//
// Measured by all ranks at once, not by rank 0, because ranks of a node share caches and memory; each round ends in
// comm::agreed(), so that a rank that throws stops all. The choice, choose_host_kernel(), is a pure function of the
// summed times with a margin in favour of the processor's usual kernel; kernels::host_kernel() is the one value that it
// decides, and choose_product_kernel() the only place that looks at it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/kernels/gemm/device_products.h"
#include "src/kernels/gemm/kernel_choice.h"
#include "src/kernels/gemm/packing.h"
#include "src/kernels/gemm/product_kernel.h"
#include "src/machine/tune_kernels.h"

namespace vit_hybrid::train {

/// A layer [outputs, inputs] of a rank as a run computes it.
struct HostLayer {
  enum class Passes { kForward, kForwardAndBackward };

  int64_t rows = 0;  ///< of a micro-batch
  int64_t outputs = 0;
  int64_t inputs = 0;
  int64_t rows_per_packing = 0;  ///< between two changes of the weight; 0: it never changes
  Passes passes = Passes::kForwardAndBackward;

  bool operator==(const HostLayer&) const = default;
};

/// As much of the layer as `threads` threads compute in some milliseconds: fewer rows, then fewer outputs.
HostLayer measured_part(HostLayer layer, int threads);

/// Computes a layer's products in fp32, with each kernel through the same functions as in a step. GELU is left out: own
/// blocks apply it to tiles of fc1's output and the library in a pass of its own, which makes a difference of about 1 %
/// of the forward.
class HostKernelTimer {
 public:
  explicit HostKernelTimer(const HostLayer& layer);

  /// Of the products of `layer`, and of its share of packing the weight where the kernel needs that (a weight that
  /// never changes is packed by the first call alone). host_kernel() is `kernel` meanwhile.
  double microseconds(kernels::ProductKernel kernel);

 private:
  void pack();
  void multiply();

  HostLayer layer_;
  at::Tensor x_;                  // [rows, inputs]
  at::Tensor dy_;                 // [rows, outputs]; with a backward
  at::Tensor bias_;               // [outputs]
  at::Tensor gradient_;           // [outputs, inputs]; with a backward
  kernels::PackedWeight weight_;  // [outputs, inputs]
  int64_t version_ = 0;
};

/// The time of each of `count` candidates, summed over the ranks: of each rank the least of several rounds, in which
/// all ranks measure the same candidate at the same time, because they share caches and memory. `measure(candidate)`
/// gives microseconds; what it throws on one rank all throw. NaN, on all ranks, for a candidate that has no time on one
/// of them (not finite, not positive). After a first round that does not count one to ten do: the second and third only
/// begin within 0.2 s, those after them within 0.1 s. So it ends after about 0.2 s at most, later only where two rounds
/// take longer. The same on all ranks. Collective over `world`.
std::vector<double> microseconds_of_all_ranks(size_t count, const std::function<double(size_t candidate)>& measure,
                                              const comm::MpiGroup& world);

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
