// The conformance suite of communicators: what every back end must do, on any group and device.
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "parallel/comm/communicator.h"

namespace vit_hybrid::testing {

/// Runs every operation with every type, and the contract's corner cases; failures are doctest's. Numbers are compared
/// with closed forms and plain loops: bit for bit where sums are put together from `blocks`, sizes of runs of ranks, as
/// the Communicator says; empty: to some bits. Collective over the group.
void check_communicator(comm::Communicator& group, c10::Device device, const std::vector<int>& blocks);

}  // namespace vit_hybrid::testing
