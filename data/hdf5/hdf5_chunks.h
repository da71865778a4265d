// Where the chunks of a dataset lie in its file. For data/hdf5_* only.
#pragma once

#include <cstdint>

#include "data/hdf5/hdf5_handle.h"
#include "data/hdf5/hdf5_layout.h"

namespace vit_hybrid::data {

/// The most chunks of a dataset that hdf5_find_chunks() is for. HDF5 before 1.14.2 walks through all of them to find
/// the next one, so the time grows with the square of their number (30,000 take 6 s); before 1.10.5 it tells of none.
#if H5_VERSION_GE(1, 14, 2)
inline constexpr int64_t kHdf5MostChunks = int64_t{1} << 40;
#elif H5_VERSION_GE(1, 10, 5)
inline constexpr int64_t kHdf5MostChunks = 40000;
#else
inline constexpr int64_t kHdf5MostChunks = 0;
#endif

/// Chunks of the grid that covers the dataset.
int64_t hdf5_num_chunks(const Hdf5Layout& layout);

/// Those of them that are in the file; before HDF5 1.10.5 all, if any is.
int64_t hdf5_num_stored_chunks(hid_t dataset, const Hdf5Layout& layout);

/// The place in Hdf5Layout::chunk_offsets of a chunk that is not stored, as hdf5_find_chunks() leaves it.
inline constexpr int64_t kHdf5ChunkNotStored = -1;

/// Fills the tables of chunks of `layout`, whose shape and chunk are set; false if one is not stored (its values are
/// fill values).
bool hdf5_find_chunks(hid_t dataset, Hdf5Layout& layout);

}  // namespace vit_hybrid::data
