// The GPU of this rank of a test program, on one machine.
#pragma once

#include <c10/core/Device.h>

namespace vit_hybrid::testing {

/// Chosen as the program chooses it, and the current device from then on; the ranks share GPUs where they outnumber
/// them. Collective over the world.
c10::Device own_gpu();

}  // namespace vit_hybrid::testing
