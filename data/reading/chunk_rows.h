// Rows of chunked datasets: which chunks, decoded and kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/hdf5/hdf5_layout.h"
#include "data/loading/tensor_pool.h"
#include "data/reading/box_runs.h"
#include "data/reading/posix_file.h"
#include "data/reading/row_reader.h"

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

/// A shape without its first dimension, that of rows.
std::vector<int64_t> inner_dims(const std::vector<int64_t>& shape);

/// The part of a box that lies in one chunk, seen from both.
struct ChunkOverlap {
  std::vector<int64_t> size;
  BoxPlace in_chunk;
  BoxPlace in_box;
};

/// Calls `visit(number of the chunk in the layout's table, overlap)` for the chunks that hold a part of the box of row
/// `row`, in their order.
void for_each_chunk(const Hdf5Layout& layout, int64_t row, const RowBox& box,
                    const std::function<void(size_t, const ChunkOverlap&)>& visit);

/// Reads the box of the row whose bytes begin at `offset`, in pieces of at most `piece_bytes`, of each of which
/// `arrived(first byte, number)` is told. Returns the bytes read.
int64_t read_runs(const PosixFile& file, const Hdf5Layout& layout, int64_t offset, const RowBox& box, char* to,
                  int64_t piece_bytes, const std::function<void(int64_t, int64_t)>& arrived);

/// Reads the box of rows of one file that lie in the same chunks, of which each is read (and inflated) once. Returns
/// the bytes read. Error(kBadData) names the chunk's place.
int64_t read_chunks(const PosixFile& file, const Hdf5Layout& layout, std::span<const RowRead> rows, const RowBox& box,
                    TensorPool& buffers);

}  // namespace vit_hybrid::data
