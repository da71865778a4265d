// Rows by pread: a run of bytes where the dataset is contiguous, else the row's slice of each chunk.
#include "data/row_reader.h"

#include <cstring>
#include <utility>

#include "data/box_runs.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

using Storage = Hdf5Layout::Storage;

// The dims after the first: what one row is made of.
std::vector<int64_t> inner(const std::vector<int64_t>& shape) {
  return {shape.begin() + 1, shape.end()};
}

// The chunks that hold one row lie one after the other in the table, in row-major order of the inner grid.
class ChunkWalk {
 public:
  ChunkWalk(const Hdf5Layout& layout, int64_t row)
      : row_shape_(inner(layout.shape)), chunk_shape_(inner(layout.chunk)), corner_(row_shape_.size(), 0) {
    int64_t per_row = 1;
    for (size_t d = 0; d < row_shape_.size(); ++d) {
      per_row *= (row_shape_[d] + chunk_shape_[d] - 1) / chunk_shape_[d];
    }
    number_ = row / layout.chunk.front() * per_row;
  }

  int64_t number() const { return number_; }
  /// First corner of the chunk in the row, and the part of the chunk that is inside of the row.
  const std::vector<int64_t>& corner() const { return corner_; }
  std::vector<int64_t> box() const {
    std::vector<int64_t> box(corner_.size());
    for (size_t d = 0; d < box.size(); ++d) {
      box[d] = std::min(chunk_shape_[d], row_shape_[d] - corner_[d]);
    }
    return box;
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
  std::vector<int64_t> row_shape_;
  std::vector<int64_t> chunk_shape_;
  std::vector<int64_t> corner_;
  int64_t number_ = 0;
};

void read_from_chunks(const PosixFile& file, const Hdf5Layout& layout, int64_t row, char* to) {
  const auto item = static_cast<int64_t>(c10::elementSize(layout.type));
  const std::vector<int64_t> row_shape = inner(layout.shape);
  const std::vector<int64_t> chunk_shape = inner(layout.chunk);
  const int64_t slice_bytes = num_elements(chunk_shape) * item;
  const int64_t slice_offset = row % layout.chunk.front() * slice_bytes;
  if (chunk_shape == row_shape) {
    file.read(layout.chunk_offsets[static_cast<size_t>(row / layout.chunk.front())] + slice_offset, to, slice_bytes);
    return;
  }
  std::vector<char> slice(static_cast<size_t>(slice_bytes));
  ChunkWalk walk(layout, row);
  do {
    file.read(layout.chunk_offsets[static_cast<size_t>(walk.number())] + slice_offset, slice.data(), slice_bytes);
    for_each_run(walk.box(), {row_shape, walk.corner()}, {chunk_shape, std::vector<int64_t>(chunk_shape.size(), 0)},
                 [&](int64_t in_row, int64_t in_chunk, int64_t count) {
                   std::memcpy(to + in_row * item, slice.data() + in_chunk * item, static_cast<size_t>(count * item));
                 });
  } while (walk.advance());
}

}  // namespace

DirectRowReader::DirectRowReader(std::vector<RowFile> files) : files_(std::move(files)) {
  for (const RowFile& file : files_) {
    VH_ASSERT(file.layout.storage != Storage::kOpaque, str(file.path, " has ", file.layout.opaque_because));
  }
}

std::shared_ptr<const PosixFile> DirectRowReader::open(int64_t file) {
  const std::lock_guard lock(mutex_);
  return open_.get(file, [&] {
    return std::make_shared<const PosixFile>(files_[static_cast<size_t>(file)].path, PosixFile::Access::kRead);
  });
}

void DirectRowReader::read(std::span<const RowRead> rows) {
  for (const RowRead& row : rows) {
    const Hdf5Layout& layout = files_[static_cast<size_t>(row.file)].layout;
    const auto file = open(row.file);
    if (layout.storage == Storage::kContiguous) {
      file->read(layout.offset + row.row * layout.row_bytes(), row.to, layout.row_bytes());
    } else {
      read_from_chunks(*file, layout, row.row, static_cast<char*>(row.to));
    }
  }
}

}  // namespace vit_hybrid::data
