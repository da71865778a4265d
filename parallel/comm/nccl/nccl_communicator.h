// The NCCL back end, for CUDA tensors; its header knows nothing of NCCL.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi/mpi_group.h"

namespace vit_hybrid::comm {

/// Splits the communicator of `group` off `world`, or makes it from an id that is broadcast over
/// `group` if `world` is null; then runs every operation, small and large, so that NCCL takes its
/// memory now. Null for a group of one. Throws Error(kUsage) in a program built without CUDA
/// and where the device has no memory left for NCCL, and Error(kIo) where NCCL has not
/// connected the ranks after options.connection_seconds (those of `world` if given). Collective over
/// `world` if given, else over `group`.
std::unique_ptr<Communicator> make_nccl_communicator(const std::string& axis, const MpiGroup& group, c10::Device device,
                                                     Communicator* world, const TransportOptions& options);

}  // namespace vit_hybrid::comm
