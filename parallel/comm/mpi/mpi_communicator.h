// The MPI back end, for host tensors: messages, or memory that the ranks of a node share.
#pragma once

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi/mpi_group.h"

namespace vit_hybrid::comm {

/// Communicator of `group`, of at least two ranks, for host tensors. Collective over `group`.
std::unique_ptr<Communicator> make_mpi_communicator(const std::string& axis, MpiGroup group,
                                                    const TransportOptions& options);

}  // namespace vit_hybrid::comm
