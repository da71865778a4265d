// Checksums of a checkpoint's tensors.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <string>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/checkpoint/format.h"

namespace vit_hybrid::train {

/// Sum over i < count of mix(global index first_index + i, bits of values[i]) modulo 2^64.
uint64_t checksum_of(const float* values, int64_t count, int64_t first_index);
uint64_t checksum_of(const double* values, int64_t count, int64_t first_index);

/// By name.
using Checksums = std::map<std::string, TensorChecksum>;

/// Adds what each rank has counted. The keys are the same on all ranks. Collective over `ranks`.
void add_up(Checksums& checksums, const comm::MpiGroup& ranks);

}  // namespace vit_hybrid::train
