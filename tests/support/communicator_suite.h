// The conformance suite of communicators: what every back end must do, on any group and device.
#pragma once

#include <c10/core/Device.h>

#include "parallel/comm/communicator.h"

namespace vit_hybrid::testing {

/// How a back end orders the sums of floating-point numbers. kRankOrder: ((x0 + x1) + x2) + ..., compared bit for bit.
enum class SumOrder { kRankOrder, kAny };

/// Runs every operation with every type, and the contract's corner cases; failures are doctest's. Numbers are compared
/// with closed forms and plain loops. Collective over the group.
void check_communicator(comm::Communicator& group, c10::Device device, SumOrder order);

}  // namespace vit_hybrid::testing
