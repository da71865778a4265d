// Chunks of filtered HDF5 datasets as values: checksum, inflation and byte order undone without HDF5, on any thread.
#pragma once

#include <cstdint>
#include <span>

#include "data/loading/tensor_pool.h"

namespace vit_hybrid::data {

/// HDF5's filter numbers.
enum class ChunkFilter : int64_t {
  kDeflate = 1,
  kShuffle = 2,
  kFletcher32 = 3,
};

/// The filters a chunk went through when it was written.
struct ChunkPipeline {
  std::span<const int64_t> filters;  ///< ChunkFilter in the order of writing
  int64_t mask = 0;                  ///< bit i: filter i was not applied
  int64_t item_bytes = 4;            ///< of one value
};

/// Undoes the filters: exactly `num_values_bytes` bytes at `values`. `pool` lends buffers where several filters follow
/// each other. Error(kBadData), without a file's name, for bytes that cannot have come from these filters.
void decode_chunk(std::span<const char> stored, const ChunkPipeline& pipeline, char* values, int64_t num_value_bytes,
                  TensorPool& pool);

/// The bytes of each value together again: byte k of all values lies in run k of `shuffled`; what does not make a whole
/// value is at the end.
void unshuffle(std::span<const char> shuffled, int64_t item_bytes, char* values);

/// Fletcher's checksum over 16-bit big-endian words, as HDF5 stores it.
uint32_t fletcher32(std::span<const char> bytes);

}  // namespace vit_hybrid::data
