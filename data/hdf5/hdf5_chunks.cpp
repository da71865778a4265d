// The walk over the chunks that HDF5 has stored.
#include "data/hdf5/hdf5_chunks.h"

#include <functional>
#include <utility>
#include <vector>

#include "data/reading/box_runs.h"

namespace vit_hybrid::data {

namespace {

// One chunk as HDF5 tells of it; `corner` in elements.
struct StoredChunk {
  std::vector<hsize_t> corner;
  haddr_t offset = HADDR_UNDEF;
  hsize_t bytes = 0;
  unsigned mask = 0;
};

#if H5_VERSION_GE(1, 14, 2)

using Visit = std::function<bool(const StoredChunk&)>;

int visit_chunk(const hsize_t* corner, unsigned mask, haddr_t offset, hsize_t bytes, void* context) {
  const auto& [rank, visit] = *static_cast<std::pair<size_t, const Visit*>*>(context);
  return (*visit)({{corner, corner + rank}, offset, bytes, mask}) ? H5_ITER_CONT : H5_ITER_STOP;
}

void for_each_chunk(hid_t dataset, size_t rank, const Visit& visit) {
  std::pair<size_t, const Visit*> context(rank, &visit);
  H5Dchunk_iter(dataset, H5P_DEFAULT, &visit_chunk, &context);
}

#elif H5_VERSION_GE(1, 10, 5)

void for_each_chunk(hid_t dataset, size_t rank, const std::function<bool(const StoredChunk&)>& visit) {
  const Hid space(H5Dget_space(dataset), &H5Sclose);
  hsize_t count = 0;
  H5Dget_num_chunks(dataset, space.get(), &count);
  for (hsize_t i = 0; i < count; ++i) {
    StoredChunk chunk;
    chunk.corner.resize(rank);
    if (H5Dget_chunk_info(dataset, space.get(), i, chunk.corner.data(), &chunk.mask, &chunk.offset, &chunk.bytes) < 0 ||
        !visit(chunk)) {
      break;
    }
  }
}

#else

void for_each_chunk(hid_t, size_t, const std::function<bool(const StoredChunk&)>&) {}

#endif

std::vector<int64_t> chunk_grid(const Hdf5Layout& layout) {
  std::vector<int64_t> grid;
  for (size_t d = 0; d < layout.shape.size(); ++d) {
    grid.push_back(layout.chunks_along(d));
  }
  return grid;
}

}  // namespace

int64_t hdf5_num_stored_chunks(hid_t dataset, const Hdf5Layout& layout) {
#if H5_VERSION_GE(1, 10, 5)
  const Hid space(H5Dget_space(dataset), &H5Sclose);
  hsize_t count = 0;
  if (H5Dget_num_chunks(dataset, space.get(), &count) >= 0) {
    return static_cast<int64_t>(count);
  }
  H5Eclear2(H5E_DEFAULT);
#endif
  return H5Dget_storage_size(dataset) == 0 ? 0 : hdf5_num_chunks(layout);
}

int64_t hdf5_num_chunks(const Hdf5Layout& layout) {
  return num_elements(chunk_grid(layout));
}

bool hdf5_find_chunks(hid_t dataset, Hdf5Layout& layout) {
  const std::vector<int64_t> grid = chunk_grid(layout);
  const auto count = static_cast<size_t>(num_elements(grid));
  layout.chunk_offsets.assign(count, kHdf5ChunkNotStored);
  layout.chunk_bytes.assign(count, 0);
  layout.chunk_masks.assign(count, 0);
  size_t num_found = 0;
  for_each_chunk(dataset, grid.size(), [&](const StoredChunk& chunk) {
    int64_t number = 0;
    for (size_t d = 0; d < grid.size(); ++d) {
      number = number * grid[d] + static_cast<int64_t>(chunk.corner[d]) / layout.chunk[d];
    }
    const auto at = static_cast<size_t>(number);
    if (chunk.offset == HADDR_UNDEF || at >= count || layout.chunk_offsets[at] != kHdf5ChunkNotStored) {
      return false;
    }
    layout.chunk_offsets[at] = static_cast<int64_t>(chunk.offset);
    layout.chunk_bytes[at] = static_cast<int64_t>(chunk.bytes);
    layout.chunk_masks[at] = chunk.mask;
    ++num_found;
    return true;
  });
  H5Eclear2(H5E_DEFAULT);
  return num_found == count;
}

}  // namespace vit_hybrid::data
