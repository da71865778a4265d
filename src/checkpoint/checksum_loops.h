// The loops of TensorChecksum over values that lie together, compiled for several instruction sets.
#pragma once

#include <cstdint>

namespace vit_hybrid::train {

/// Sum over i < count of mix(global index first_index + i, bits of values[i]) modulo 2^64.
uint64_t checksum_of(const float* values, int64_t count, int64_t first_index);
uint64_t checksum_of(const double* values, int64_t count, int64_t first_index);

}  // namespace vit_hybrid::train
