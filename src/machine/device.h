// The device of a rank.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "data/loading/tensor_pool.h"
#include "parallel/comm/failure.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/comm/transport_options.h"
#include "src/config/run_config.h"

namespace vit_hybrid::train {

/// The device of this rank, made the current one of the calling thread, with a stream of its own: one GPU a rank (or
/// ranks_per_gpu) by its place on the node, or the CPU; see assign_gpu(). Ranks that share a GPU have NCCL set up for
/// it. Error(kUsage) where the device, or the configuration's precision, pin_memory or cuda_graph with it, cannot be.
/// Collective over `world`.
c10::Device choose_device(const RunConfig& config, const comm::MpiGroup& world);

/// How the communicators of a run are made: within its time limit.
comm::TransportOptions transport_options(const RunConfig& config);

/// Where the batches of a rank with this device lie on the host: kAuto page-locks them where the device is a GPU.
/// Error(kUsage) where kOn is asked for and it is none.
data::HostMemory batch_memory(PinMemory choice, c10::Device device);

}  // namespace vit_hybrid::train
