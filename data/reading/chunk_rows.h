// Boxes of rows by pread: as runs of a row that lies together, or out of the chunks that it is cut into.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "data/hdf5/hdf5_layout.h"
#include "data/loading/tensor_pool.h"
#include "data/reading/posix_file.h"
#include "data/reading/row_reader.h"

namespace vit_hybrid::data {

/// Reads the box of the row whose bytes begin at `offset`, in pieces of at most `piece_bytes`, of each of which
/// `arrived(first byte, number)` is told. Returns the bytes read.
int64_t read_runs(const PosixFile& file, const Hdf5Layout& layout, int64_t offset, const RowBox& box, char* to,
                  int64_t piece_bytes, const std::function<void(int64_t, int64_t)>& arrived);

/// Reads the box of rows of one file that lie in the same chunks, of which each is read (and inflated) once. Returns
/// the bytes read. Error(kBadData) names the chunk's place.
int64_t read_chunks(const PosixFile& file, const Hdf5Layout& layout, std::span<const RowRead> rows, const RowBox& box,
                    TensorPool& buffers);

}  // namespace vit_hybrid::data
