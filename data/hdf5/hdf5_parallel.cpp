// Property lists of parallel HDF5.
#include "data/hdf5/hdf5_parallel.h"

#include "parallel/comm/mpi/mpi_handle.h"
#include "parallel/comm/node_board.h"

namespace vit_hybrid::data {

Hid hdf5_mpi_access(const comm::MpiGroup& group, const MpiIoHints& hints) {
  hdf5_initialize();
  Hid access(H5Pcreate(H5P_FILE_ACCESS), &H5Pclose);
  MPI_Info info = MPI_INFO_NULL;
  if (!hints.empty()) {
    MPI_Info_create(&info);
    for (const auto& [key, value] : hints) {
      MPI_Info_set(info, key.c_str(), value.c_str());
    }
  }
  const herr_t status = H5Pset_fapl_mpio(access.get(), comm::mpi_comm(group), info);  // keeps a copy
  if (info != MPI_INFO_NULL) {
    MPI_Info_free(&info);
  }
  hdf5_check(status, ErrorClass::kInternal, "set up MPI-IO");
  return access;
}

Hid hdf5_transfer(Hdf5Transfer transfer) {
  Hid list(H5Pcreate(H5P_DATASET_XFER), &H5Pclose);
  const auto mode = transfer == Hdf5Transfer::kCollective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT;
  hdf5_check(H5Pset_dxpl_mpio(list.get(), mode), ErrorClass::kInternal, "set up an MPI-IO transfer");
  return list;
}

bool hdf5_may_close_collectively() {
  return comm::may_release_mpi();
}

}  // namespace vit_hybrid::data
