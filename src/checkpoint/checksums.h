// Checksums: those of many tensors, put together over ranks.
#pragma once

#include <c10/core/Device.h>

#include <map>
#include <string>

#include "parallel/comm/communicator.h"
#include "src/checkpoint/format.h"

namespace vit_hybrid::train {

/// By name.
using Checksums = std::map<std::string, TensorChecksum>;

/// Adds what each rank has counted. The keys are the same on all ranks; numbers travel on `device`, one that the
/// communicator serves. Collective over `ranks`.
void add_up(Checksums& checksums, comm::Communicator& ranks, c10::Device device = c10::kCPU);

}  // namespace vit_hybrid::train
