// RowReader: rows by pread, as runs of bytes where they lie together in the file, else the parts of each chunk.
#include "data/reading/row_reader.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "data/reading/box_runs.h"
#include "data/reading/chunk_rows.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

using Storage = ArrayLayout::Storage;

// Where the bytes of a row begin in the file, if they lie together there; else -1.
int64_t row_offset(const ArrayLayout& layout, int64_t row) {
  if (layout.storage == Storage::kContiguous) {
    return layout.offset + row * layout.row_bytes();
  }
  if (layout.storage != Storage::kChunked || inner_dims(layout.chunk) != inner_dims(layout.shape)) {
    return -1;
  }
  const int64_t rows_per_chunk = layout.chunk.front();
  return layout.chunk_offsets[static_cast<size_t>(row / rows_per_chunk)] + row % rows_per_chunk * layout.row_bytes();
}

// Number of reads from `first` on that the same chunks serve.
size_t count_same_chunks(std::span<const RowRead> rows, size_t first, int64_t rows_per_chunk) {
  const auto differs = [&](const RowRead& read) {
    return read.file != rows[first].file || read.row / rows_per_chunk != rows[first].row / rows_per_chunk;
  };
  const auto rest = rows.subspan(first);
  return static_cast<size_t>(std::find_if(rest.begin(), rest.end(), differs) - rest.begin());
}

}  // namespace

int64_t num_rows(const std::vector<RowFile>& files) {
  return std::accumulate(files.begin(), files.end(), int64_t{0},
                         [](int64_t sum, const RowFile& file) { return sum + file.layout.num_rows(); });
}

RowBox RowBox::whole(const ArrayLayout& layout) {
  return {std::vector<int64_t>(layout.shape.size() - 1, 0), inner_dims(layout.shape)};
}

int64_t RowBox::num_values() const {
  return num_elements(size);
}

std::string RowFile::where(int64_t channel) const {
  const ArrayLayout& array = layout.array_of(channel);
  return str(path_of(array), ": dataset '", shown(array.name), "'");
}

OpenFiles::OpenFiles(const std::vector<RowFile>& files) {
  for (const RowFile& file : files) {
    paths_.push_back(file.path_to_open());
    for (const ArrayLayout& array : file.layout.arrays) {
      if (!array.file.empty()) {
        paths_.push_back(array.file);
      }
    }
  }
  std::sort(paths_.begin(), paths_.end());
  paths_.erase(std::unique(paths_.begin(), paths_.end()), paths_.end());
}

int64_t OpenFiles::number_of(const std::string& path) const {
  const auto found = std::lower_bound(paths_.begin(), paths_.end(), path);
  VH_ASSERT(found != paths_.end() && *found == path, path);
  return found - paths_.begin();
}

std::shared_ptr<const PosixFile> OpenFiles::get(int64_t number) {
  const std::lock_guard lock(mutex_);
  return open_.get(number, [&] {
    return std::make_shared<const PosixFile>(paths_[static_cast<size_t>(number)], PosixFile::Access::kRead);
  });
}

DirectRowReader::DirectRowReader(std::vector<RowFile> files, std::shared_ptr<OpenFiles> open,
                                 std::shared_ptr<TensorPool> buffers)
    : files_(std::move(files)),
      open_(open != nullptr ? std::move(open) : std::make_shared<OpenFiles>(files_)),
      buffers_(buffers != nullptr ? std::move(buffers) : std::make_shared<TensorPool>()) {
  for (const RowFile& file : files_) {
    VH_ASSERT(file.layout.storage != Storage::kOpaque, str(file.path, " has ", file.layout.opaque_because));
    numbers_.push_back(open_->number_of(file.path_to_open()));
  }
}

void DirectRowReader::read(std::span<const RowRead> rows, std::span<const RowBox> boxes, const Arrived& arrived) {
  for (size_t i = 0; i < rows.size();) {
    const RowRead& row = rows[i];
    const RowFile& where = files_[static_cast<size_t>(row.file)];
    try {
      const bool has_own_files = where.layout.storage == Storage::kChunkFiles;
      const auto file = has_own_files ? nullptr : open_->get(numbers_[static_cast<size_t>(row.file)]);
      const auto item = static_cast<int64_t>(c10::elementSize(where.layout.type));
      const int64_t offset = row_offset(where.layout, row.row);
      if (offset >= 0) {
        for (const RowBox& box : boxes) {
          const auto tell = [&](int64_t first, int64_t count) { arrived(i, box.at * item + first, count); };
          bytes_read_ += read_runs(*file, where.layout, offset, box, static_cast<char*>(row.to) + box.at * item,
                                   arrived ? Decoded(tell) : Decoded());
        }
        ++i;
        continue;
      }
      const auto same = rows.subspan(i, count_same_chunks(rows, i, where.layout.chunk.front()));
      const auto arrived_of_same = [&](size_t read, int64_t first, int64_t count) { arrived(i + read, first, count); };
      bytes_read_ +=
          read_chunks(where, file.get(), same, boxes, *buffers_, arrived ? Arrived(arrived_of_same) : Arrived());
      i += same.size();
    } catch (const Error& error) {
      if (error.message().starts_with(str(where.path, ": dataset"))) {
        throw;  // it says already where
      }
      throw Error(error.error_class(),
                  str(where.path, ": dataset '", where.layout.name, "', row ", row.row, ": ", error.message()),
                  error.hint());
    }
  }
}

}  // namespace vit_hybrid::data
