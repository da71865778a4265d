// Runs and chunks that a box of a row touches.
#include "data/tools/read_cost.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "data/reading/box_runs.h"
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

// Chunks that the box touches.
int64_t num_touched_chunks(const Hdf5Layout& layout, const RowBox& box) {
  int64_t count = 1;
  for (size_t d = 0; d < box.size.size(); ++d) {
    const int64_t chunk = layout.chunk[d + 1];
    const int64_t last = box.start[d] + box.size[d] - 1;
    count *= box.size[d] == 0 ? 0 : last / chunk - box.start[d] / chunk + 1;
  }
  return count;
}

// There may be more of them than can be listed. None is taken to lie beside another.
void add_unlisted_chunks(const Hdf5Layout& layout, const RowBox& box, ReadCost& cost) {
  cost.num_reads = num_touched_chunks(layout, box);
  if (__builtin_mul_overflow(cost.num_reads, num_elements(layout.chunk) * item_bytes(layout), &cost.bytes_needed)) {
    cost.bytes_needed = std::numeric_limits<int64_t>::max();
  }
  cost.bytes_in_file = cost.bytes_needed;
}

void add_whole_chunks(const Hdf5Layout& layout, int64_t row, const RowBox& box, ReadCost& cost) {
  const int64_t chunk_bytes = num_elements(layout.chunk) * item_bytes(layout);
  cost.bytes_needed = 0;
  cost.bytes_in_file = 0;
  std::vector<Run> runs;
  for_each_touched_chunk(layout, row, box, [&](size_t number, const BoxPlace&, const Shape&) {
    cost.bytes_needed += chunk_bytes;
    cost.bytes_in_file += layout.chunk_bytes[number];
    runs.emplace_back(layout.chunk_offsets[number], layout.chunk_bytes[number]);
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
  } else if (!layout.chunk.empty() && layout.chunk_bytes.empty()) {
    add_unlisted_chunks(layout, box, cost);
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
