// The time of a linear layer's products by each kernel of the host, measured on all ranks at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/kernels/gemm/packed_weight.h"
#include "src/kernels/gemm/product_kernel.h"

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

}  // namespace vit_hybrid::train
