// The walk over the chunks that hold some rows, and the copies out of them.
#include "data/reading/chunk_rows.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "data/reading/box_runs.h"
#include "data/reading/chunk_decoder.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

using Shape = std::vector<int64_t>;

// Shorter runs are copied out of one read of all bytes between the first and the last of them.
constexpr int64_t kLongRun = int64_t{1} << 15;

Shape inner(const Shape& shape) {
  return {shape.begin() + 1, shape.end()};
}

int64_t item_bytes(const Hdf5Layout& layout) {
  return static_cast<int64_t>(c10::elementSize(layout.type));
}

// The part of a box that lies in one chunk, seen from both.
struct Overlap {
  Shape size;
  BoxPlace in_chunk;
  BoxPlace in_box;
  bool is_empty() const { return num_elements(size) == 0; }
};

// The chunks that hold one row lie one after the other in the table, in row-major order of the inner grid.
class ChunkWalk {
 public:
  ChunkWalk(const Hdf5Layout& layout, int64_t row)
      : row_shape_(inner(layout.shape)),
        chunk_shape_(inner(layout.chunk)),
        corner_(row_shape_.size(), 0),
        number_(row / layout.chunk.front() * layout.chunks_per_row()) {}

  size_t number() const { return static_cast<size_t>(number_); }
  Overlap overlap(const RowBox& box) const {
    Overlap part{corner_, {chunk_shape_, corner_}, {box.size, corner_}};
    for (size_t d = 0; d < corner_.size(); ++d) {
      const int64_t begin = std::max(corner_[d], box.start[d]);
      const int64_t end = std::min(corner_[d] + chunk_shape_[d], box.start[d] + box.size[d]);
      part.size[d] = std::max<int64_t>(end - begin, 0);
      part.in_chunk.start[d] = begin - corner_[d];
      part.in_box.start[d] = begin - box.start[d];
    }
    return part;
  }
  bool advance() {
    ++number_;
    for (size_t d = corner_.size(); d-- > 0;) {
      corner_[d] += chunk_shape_[d];
      if (corner_[d] < row_shape_[d]) {
        return true;
      }
      corner_[d] = 0;
    }
    return false;
  }

 private:
  Shape row_shape_;
  Shape chunk_shape_;
  Shape corner_;
  int64_t number_;
};

struct Run {
  int64_t in_chunk;
  int64_t in_box;
  int64_t count;
};

std::vector<Run> runs_of(const Overlap& part, int64_t item) {
  std::vector<Run> runs;
  for_each_run(part.size, part.in_chunk, part.in_box, [&](int64_t in_chunk, int64_t in_box, int64_t count) {
    runs.push_back({in_chunk * item, in_box * item, count * item});
  });
  return runs;
}

void copy_runs(const std::vector<Run>& runs, const char* chunk, char* box) {
  for (const Run& run : runs) {
    std::memcpy(box + run.in_box, chunk + run.in_chunk, static_cast<size_t>(run.count));
  }
}

// Out of a chunk's slice of one row, which lies at `offset`.
int64_t read_slice(const PosixFile& file, int64_t offset, const std::vector<Run>& runs, char* to, TensorPool& buffers) {
  if (runs.front().count >= kLongRun) {
    int64_t bytes = 0;
    for (const Run& run : runs) {
      file.read(offset + run.in_chunk, to + run.in_box, run.count);
      bytes += run.count;
    }
    return bytes;
  }
  const int64_t begin = runs.front().in_chunk;
  const int64_t bytes = runs.back().in_chunk + runs.back().count - begin;
  const at::Tensor buffer = buffers.take({bytes}, at::kByte);
  auto* between = static_cast<char*>(buffer.data_ptr());
  file.read(offset + begin, between, bytes);
  for (const Run& run : runs) {
    std::memcpy(to + run.in_box, between + run.in_chunk - begin, static_cast<size_t>(run.count));
  }
  return bytes;
}

int64_t read_filtered(const PosixFile& file, const Hdf5Layout& layout, size_t number, std::span<const RowRead> rows,
                      const std::vector<Run>& runs, TensorPool& buffers) {
  const int64_t bytes = layout.chunk_bytes[number];
  const int64_t offset = layout.chunk_offsets[number];
  const int64_t slice_bytes = num_elements(inner(layout.chunk)) * item_bytes(layout);
  const int64_t value_bytes = layout.chunk.front() * slice_bytes;
  const at::Tensor stored = buffers.take({bytes}, at::kByte);
  file.read(offset, stored.data_ptr(), bytes);
  // A chunk that is all that is wanted goes to its place at once.
  const bool is_whole =
      value_bytes == slice_bytes && rows.size() == 1 && runs.size() == 1 && runs.front().count == slice_bytes;
  const at::Tensor decoded = is_whole ? at::Tensor() : buffers.take({value_bytes}, at::kByte);
  char* values =
      is_whole ? static_cast<char*>(rows.front().to) + runs.front().in_box : static_cast<char*>(decoded.data_ptr());
  try {
    decode_chunk({static_cast<const char*>(stored.const_data_ptr()), static_cast<size_t>(bytes)},
                 {layout.filters, layout.chunk_masks[number], item_bytes(layout)}, values, value_bytes, buffers);
  } catch (const Error& error) {
    throw Error(error.error_class(), str("the chunk of ", bytes, " bytes at byte ", offset, ": ", error.message()),
                error.hint());
  }
  if (!is_whole) {
    for (const RowRead& row : rows) {
      copy_runs(runs, values + row.row % layout.chunk.front() * slice_bytes, static_cast<char*>(row.to));
    }
  }
  return bytes;
}

}  // namespace

int64_t read_runs(const PosixFile& file, const Hdf5Layout& layout, int64_t offset, const RowBox& box, char* to,
                  int64_t piece_bytes, const std::function<void(int64_t, int64_t)>& arrived) {
  const int64_t item = item_bytes(layout);
  const Shape corner(box.size.size(), 0);
  int64_t bytes = 0;
  for_each_run(box.size, {inner(layout.shape), box.start}, {box.size, corner},
               [&](int64_t in_row, int64_t in_box, int64_t count) {
                 for (int64_t done = 0; done < count * item; done += piece_bytes) {
                   const int64_t piece = std::min(piece_bytes, count * item - done);
                   file.read(offset + in_row * item + done, to + in_box * item + done, piece);
                   arrived(in_box * item + done, piece);
                 }
                 bytes += count * item;
               });
  return bytes;
}

int64_t read_chunks(const PosixFile& file, const Hdf5Layout& layout, std::span<const RowRead> rows, const RowBox& box,
                    TensorPool& buffers) {
  const int64_t rows_per_chunk = layout.chunk.front();
  const int64_t slice_bytes = num_elements(inner(layout.chunk)) * item_bytes(layout);
  int64_t bytes = 0;
  ChunkWalk walk(layout, rows.front().row);
  do {
    const Overlap part = walk.overlap(box);
    if (part.is_empty()) {
      continue;
    }
    const std::vector<Run> runs = runs_of(part, item_bytes(layout));
    if (layout.storage == Hdf5Layout::Storage::kFiltered) {
      bytes += read_filtered(file, layout, walk.number(), rows, runs, buffers);
      continue;
    }
    for (const RowRead& row : rows) {
      const int64_t offset = layout.chunk_offsets[walk.number()] + row.row % rows_per_chunk * slice_bytes;
      bytes += read_slice(file, offset, runs, static_cast<char*>(row.to), buffers);
    }
  } while (walk.advance());
  return bytes;
}

}  // namespace vit_hybrid::data
