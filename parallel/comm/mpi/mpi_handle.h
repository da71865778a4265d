// What is behind an MpiGroup, for the few files that call MPI: its MPI_Comm, and checked calls.
#pragma once

#include <mpi.h>

#include "parallel/comm/mpi/mpi_group.h"

namespace vit_hybrid::comm {

struct MpiGroup::Handle {
  MPI_Comm comm = MPI_COMM_NULL;
};

/// The group's communicator, for calls of MPI and parallel HDF5; it stays the group's.
inline MPI_Comm mpi_comm(const MpiGroup& group) {
  return group.handle().comm;
}

/// Throws Error(kIo) with MPI's own text if `code` is not MPI_SUCCESS; `call` names the function.
void check_mpi(int code, const char* call);

/// Rank in MpiGroup::world() of each rank of `comm`.
std::vector<int> world_ranks(MPI_Comm comm);

/// False before MPI_Init and after MPI_Finalize, and while an exception unwinds the stack: then a
/// destructor must leave MPI alone, because the other ranks will not join it.
bool may_release_mpi() noexcept;

}  // namespace vit_hybrid::comm
