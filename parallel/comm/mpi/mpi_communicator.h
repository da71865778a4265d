// The MPI back end, for host tensors; its header knows nothing of MPI.
#pragma once

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/comm/transport_options.h"

namespace vit_hybrid::comm {

/// Communicator of `group`, of at least two ranks, for host tensors. Collective over `group`.
std::unique_ptr<Communicator> make_mpi_communicator(const std::string& axis, MpiGroup group,
                                                    const TransportOptions& options);

}  // namespace vit_hybrid::comm
