// Device and threads of a rank.
#pragma once

#include <c10/core/Device.h>

#include "parallel/comm/failure.h"
#include "src/train/run_config.h"

namespace vit_hybrid::train {

/// The device of this rank: one GPU a rank by its place on the node, or the CPU. kAuto takes GPUs where the program was
/// built for them and the node has one for each of its ranks. Error(kUsage) where kCuda cannot be.
c10::Device choose_device(DeviceChoice choice, const comm::ProcessPlace& place);

/// Threads of this rank: `threads`, else OMP_NUM_THREADS, else the node's cores shared among its ranks.
void set_threads(int threads, const comm::ProcessPlace& place);

}  // namespace vit_hybrid::train
