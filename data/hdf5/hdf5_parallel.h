// Parallel HDF5 over a group: property lists for MPI-IO, and handles that leave MPI alone while an error unwinds. For
// data/hdf5_* only.
#pragma once

#include <string>

#include "data/hdf5/hdf5_handle.h"
#include "data/reading/io_mode.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/comm/operation_slot.h"

namespace vit_hybrid::data {

/// File access through MPI-IO by the ranks of `group`; an MPI library takes the hints that it knows.
Hid hdf5_mpi_access(const comm::MpiGroup& group, const MpiIoHints& hints = {});

/// Transfer by all ranks of the file's group together, or by each for itself.
enum class Hdf5Transfer { kIndependent, kCollective };
Hid hdf5_transfer(Hdf5Transfer transfer);

/// Whether identifiers whose closing is collective may be closed now (see comm::may_release_mpi).
bool hdf5_may_close_collectively();

}  // namespace vit_hybrid::data
