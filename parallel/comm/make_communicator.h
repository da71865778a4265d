// make_communicator: the one place that picks a back end.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/comm/transport_options.h"

namespace vit_hybrid::comm {

/// Communicator of `group` (which it keeps) for tensors on `device`: self for a group of one, MPI
/// for host tensors, NCCL for CUDA tensors. `world` is the communicator of a larger group for the
/// same device, of which NCCL splits the new one off; null makes one from scratch. Throws
/// Error(kUsage) for a CUDA device in a program built without it. Collective over `world` if given,
/// else over `group`.
std::unique_ptr<Communicator> make_communicator(const std::string& axis, MpiGroup group, c10::Device device,
                                                Communicator* world = nullptr, const TransportOptions& options = {});

/// Version of NCCL ("2.28.9"), or "" in a program without it.
std::string nccl_version();

}  // namespace vit_hybrid::comm
