// RowReader: rows of a dataset that is spread over files, read into memory; and the reader that needs no HDF5.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "data/hdf5_layout.h"
#include "data/lru_cache.h"
#include "data/posix_file.h"

namespace vit_hybrid::data {

/// A dataset in one of the files.
struct RowFile {
  std::string path;
  Hdf5Layout layout;
};

/// One row to read: index `row` along the first dim of file number `file`, into the row_bytes() bytes at `to`.
struct RowRead {
  int64_t file;
  int64_t row;
  void* to;
};

/// Reads rows as the layout's type says them in memory. Files are opened when first needed; a bounded number stays
/// open.
class RowReader {
 public:
  virtual ~RowReader() = default;
  /// Rows in the order of file and row are read fastest. Error(kIo), Error(kBadData).
  virtual void read(std::span<const RowRead> rows) = 0;
};

/// Number of files that one reader keeps open.
inline constexpr size_t kMostOpenFiles = 64;

/// Reads contiguous and chunked layouts by pread. Any number of threads at once.
class DirectRowReader : public RowReader {
 public:
  /// No layout is opaque.
  explicit DirectRowReader(std::vector<RowFile> files);
  void read(std::span<const RowRead> rows) override;

 private:
  std::shared_ptr<const PosixFile> open(int64_t file);

  const std::vector<RowFile> files_;
  std::mutex mutex_;  // guards open_
  LruCache<const PosixFile> open_{kMostOpenFiles};
};

}  // namespace vit_hybrid::data
