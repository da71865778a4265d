// Calibration: measures the rates of this machine for a MachineFile, by the functions that a training step calls.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/machine/machine_file.h"

namespace vit_hybrid::train {

/// The rates of all kernel_kinds() on the host in this type, of all ranks at once, over tensors that are not in the
/// caches: those of a step are not either. `packing` is left out where products pack nothing. kernels::host_kernel()
/// and the number of threads are as a run would have them. Collective over `world`.
RateTables calibrate_kernels(at::ScalarType type, const comm::MpiGroup& world);

/// The rates of all message_kinds() between host tensors of the ranks of a node, for groups of 2, 4, ... and all of
/// them; empty where a node has one. All nodes measure at once. Collective over `world`.
RateTables calibrate_messages(const comm::MpiGroup& world);

/// What leaves a node at most, and what a message between nodes costs: all ranks of the first two nodes exchange with
/// each other in pairs.
struct NodeRates {
  double bytes_per_s = 0.0;  ///< 0: there is one node
  double latency_s = 0.0;
};
/// Nodes have equally many ranks, which are consecutive. Collective over `world`.
NodeRates calibrate_nodes(const comm::MpiGroup& world);

}  // namespace vit_hybrid::train
