// A communicator of one rank for tests of one process.
#pragma once

#include "parallel/comm/communicator.h"

namespace vit_hybrid::testing {

/// The tensor axis of a single process; lives as long as the program.
comm::Communicator& group_of_one();

}  // namespace vit_hybrid::testing
