// Runs and chunks that a box of a row touches.
#include "data/tools/read_cost.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "data/box_runs.h"
#include "src/base/error.h"
#include "src/base/partition.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

using Storage = Hdf5Layout::Storage;
using Shape = std::vector<int64_t>;
using Run = std::pair<int64_t, int64_t>;  // first byte in the file, number of bytes

Shape inner(const Shape& shape) {
  return {shape.begin() + 1, shape.end()};
}

int64_t item_bytes(const Hdf5Layout& layout) {
  return static_cast<int64_t>(c10::elementSize(layout.type));
}

void add_runs(const BoxPlace& place, const Shape& size, int64_t offset, int64_t item, std::vector<Run>& runs) {
  const BoxPlace dense{size, Shape(size.size(), 0)};
  for_each_run(size, place, dense,
               [&](int64_t at, int64_t, int64_t count) { runs.emplace_back(offset + at * item, count * item); });
}

// Calls visit(number of the chunk in the table, the box's part in it as a place in a chunk's row, size of the part).
template <class Visit>
void for_each_touched_chunk(const Hdf5Layout& layout, int64_t row, const RowBox& box, const Visit& visit) {
  const Shape shape = inner(layout.shape);
  const Shape chunk = inner(layout.chunk);
  Shape corner(shape.size(), 0);
  int64_t number = row / layout.chunk.front() * layout.chunks_per_row();
  for (int64_t left = layout.chunks_per_row(); left > 0; --left, ++number) {
    BoxPlace place{chunk, corner};
    Shape size = corner;
    for (size_t d = 0; d < size.size(); ++d) {
      const int64_t begin = std::max(corner[d], box.start[d]);
      const int64_t end = std::min(corner[d] + chunk[d], box.start[d] + box.size[d]);
      size[d] = std::max<int64_t>(end - begin, 0);
      place.start[d] = begin - corner[d];
    }
    if (num_elements(size) > 0) {
      visit(static_cast<size_t>(number), place, size);
    }
    for (size_t d = corner.size(); d-- > 0;) {
      corner[d] += chunk[d];
      if (corner[d] < shape[d]) {
        break;
      }
      corner[d] = 0;
    }
  }
}

int64_t count_places(std::vector<Run> runs) {
  std::sort(runs.begin(), runs.end());
  int64_t places = 0;
  int64_t end = -1;
  for (const auto& [first, bytes] : runs) {
    places += first == end ? 0 : 1;
    end = first + bytes;
  }
  return places;
}

// Only parts of chunks need be read.
void add_unfiltered(const Hdf5Layout& layout, int64_t row, const RowBox& box, ReadCost& cost) {
  const int64_t item = item_bytes(layout);
  const int64_t slice = num_elements(inner(layout.chunk)) * item;
  std::vector<Run> runs;
  for_each_touched_chunk(layout, row, box, [&](size_t number, const BoxPlace& place, const Shape& size) {
    add_runs(place, size, layout.chunk_offsets[number] + row % layout.chunk.front() * slice, item, runs);
  });
  cost.num_reads = count_places(std::move(runs));
}

void add_whole_chunks(const Hdf5Layout& layout, int64_t row, const RowBox& box, ReadCost& cost) {
  const int64_t chunk_bytes = num_elements(layout.chunk) * item_bytes(layout);
  cost.bytes_needed = 0;
  cost.bytes_in_file = 0;
  std::vector<Run> runs;
  for_each_touched_chunk(layout, row, box, [&](size_t number, const BoxPlace&, const Shape&) {
    const bool is_known = number < layout.chunk_bytes.size();
    const int64_t stored = is_known ? layout.chunk_bytes[number] : chunk_bytes;
    cost.bytes_needed += chunk_bytes;
    cost.bytes_in_file += stored;
    // Of chunks at unknown places none is taken to lie beside another.
    runs.emplace_back(is_known ? layout.chunk_offsets[number] : 2 * static_cast<int64_t>(number) * chunk_bytes, stored);
  });
  cost.num_reads = count_places(std::move(runs));
}

}  // namespace

ReadCost read_cost(const Hdf5Layout& layout, int64_t row, const RowBox& box) {
  VH_ASSERT(!layout.shape.empty() && box.size.size() + 1 == layout.shape.size(), "a box of a row");
  const int64_t bytes = box.num_values() * item_bytes(layout);
  ReadCost cost{bytes, bytes, bytes, 1};
  if (layout.storage == Storage::kChunked) {
    add_unfiltered(layout, row, box, cost);
  } else if (!layout.chunk.empty()) {
    add_whole_chunks(layout, row, box, cost);
  } else {
    std::vector<Run> runs;
    add_runs({inner(layout.shape), box.start}, box.size, 0, item_bytes(layout), runs);
    cost.num_reads = count_places(std::move(runs));
  }
  return cost;
}

RowBox latitude_band(const Hdf5Layout& layout, int64_t band, int64_t num_bands) {
  VH_ASSERT(layout.shape.size() == 4, str("bands of ", layout.shape.size(), " dims"));
  const Range rows = Partition(layout.shape[2], num_bands).part(band);
  return {{0, rows.begin, 0}, {layout.shape[1], rows.size(), layout.shape[3]}};
}

}  // namespace vit_hybrid::data
