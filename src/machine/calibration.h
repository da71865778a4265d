// Calibration: measures the rates of this machine for a MachineFile, by the functions that a training step calls.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

#include "model/vit_options.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/machine/machine_file.h"

namespace vit_hybrid::train {

/// The rates of all kernel_kinds() on the host in this type, of all ranks at once, over tensors that are not in the
/// caches: those of a step are not either. `packing` is left out where products pack nothing. kernels::host_kernel()
/// and the number of threads are as a run would have them. Collective over `world`.
RateTables calibrate_kernels(at::ScalarType type, const comm::MpiGroup& world);

/// Seconds of forward and backward of one sample through the blocks of `model`: kernels, and what the host does beside
/// them. Collective over `world`, whose ranks all do the same.
double calibrate_blocks(const model::VitOptions& model, at::ScalarType type, const comm::MpiGroup& world);

/// Bytes a second that a rank reads while all do: rows of an HDF5 file that other ranks have written into `folder`,
/// that the nodes' caches do not hold (but where the file system is memory), and that is removed. With as many reading
/// threads as trainings have by default. Collective over `world`; errors are agreed: Error(kCannotCreate), Error(kIo).
double calibrate_reading(const std::string& folder, const comm::MpiGroup& world);

/// The rates of all message_kinds() between host tensors of the ranks of a node, for groups of 2, 4, ... and all of
/// them; empty where a node has one. All nodes measure at once. Collective over `world`.
RateTables calibrate_messages(const comm::MpiGroup& world);

/// What joins the nodes: all ranks of the first two exchange with each other in pairs. Unknown where there is one node,
/// or nodes have not equally many ranks, which are consecutive. Collective over `world`.
NodeNetwork calibrate_nodes(const comm::MpiGroup& world);

}  // namespace vit_hybrid::train
