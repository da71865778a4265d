// Rows of chunked datasets: which chunks, decoded and kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/loading/tensor_pool.h"
#include "data/reading/array_layout.h"
#include "data/reading/box_runs.h"
#include "data/reading/codecs.h"
#include "data/reading/posix_file.h"
#include "data/reading/row_reader.h"

namespace vit_hybrid::data {

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
void for_each_chunk(const ArrayLayout& layout, int64_t row, const RowBox& box,
                    const std::function<void(size_t, const ChunkOverlap&)>& visit);

/// Reads the box of the row whose bytes begin at `offset`, in pieces that stay in the cache until `arrived(first byte,
/// number)` is told of them; at once where it is empty. Returns the bytes read.
int64_t read_runs(const PosixFile& file, const ArrayLayout& layout, int64_t offset, const RowBox& box, char* to,
                  const Decoded& arrived);

/// Reads the boxes of rows of one file that lie in the same chunks, of which each is read (and decoded) once. `opened`
/// is the file, but of kChunkFiles null. Returns the bytes read. Error(kBadData) names the chunk's place; what
/// `arrived` throws passes.
int64_t read_chunks(const RowFile& file, const PosixFile* opened, std::span<const RowRead> rows,
                    std::span<const RowBox> boxes, TensorPool& buffers, const Arrived& arrived);

/// All values of an array of one dim of kChunkFiles. Errors as read_chunks()'s.
at::Tensor read_chunk_files(const RowFile& file);

}  // namespace vit_hybrid::data
