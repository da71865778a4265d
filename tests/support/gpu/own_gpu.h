// The GPU of this rank of a test program, on one machine.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "parallel/comm/make_communicator.h"

namespace vit_hybrid::testing {

/// Chosen as the program chooses it, and the current device from then on; the ranks share GPUs where they outnumber
/// them. Collective over the world.
c10::Device own_gpu();

/// How groups of ranks on those GPUs are connected, as the program connects them (train::transport_options()).
comm::TransportOptions gpu_transport();

/// Calls of the driver for memory of that GPU so far.
int64_t device_allocations();

}  // namespace vit_hybrid::testing
