// RowReader: rows of a dataset that is spread over files, read into memory; and the reader that needs no HDF5.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/loading/tensor_pool.h"
#include "data/reading/array_layout.h"
#include "data/reading/posix_file.h"

namespace vit_hybrid::data {

/// A bounded number of open things (files). Not for several threads at once.
template <class Value>
class LruCache {
 public:
  explicit LruCache(size_t capacity) : capacity_(capacity) {}

  /// The value of `key`, made by make() if it is not kept. It lives as long as the caller holds it; the dropped one, if
  /// nobody holds it, ends before make() is called.
  template <class Make>
  std::shared_ptr<Value> get(int64_t key, Make&& make) {
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->first == key) {
        entries_.splice(entries_.begin(), entries_, entry);
        return entry->second;
      }
    }
    if (entries_.size() == capacity_) {
      entries_.pop_back();
    }
    entries_.emplace_front(key, make());
    return entries_.front().second;
  }

  /// Calls f(value) for all values kept.
  template <class Function>
  void for_each(Function&& f) {
    for (auto& entry : entries_) {
      f(*entry.second);
    }
  }

 private:
  size_t capacity_;
  std::list<std::pair<int64_t, std::shared_ptr<Value>>> entries_;  // the latest first
};

/// A dataset, or several that are joined, in one of the files.
struct RowFile {
  std::string path;
  ArrayLayout layout;
  std::string staged_as = {};  ///< a copy to be read in its place, or empty

  const std::string& path_to_open() const { return staged_as.empty() ? path : staged_as; }
  const std::string& path_of(const ArrayLayout& array) const { return array.file.empty() ? path : array.file; }
  /// "1990.nc: dataset 'z'": where `channel` of a field lies.
  std::string where(int64_t channel) const;
};

/// Of all files.
int64_t num_rows(const std::vector<RowFile>& files);

/// A part that is wanted of every row: a box in the dims after the first.
struct RowBox {
  std::vector<int64_t> start;
  std::vector<int64_t> size;
  int64_t at = 0;  ///< where it goes, in values behind RowRead::to

  /// All of the rows of `layout`.
  static RowBox whole(const ArrayLayout& layout);
  int64_t num_values() const;
};

/// One row to read: the boxes of index `row` along the first dim of file number `file`, each row-major, into `to`.
struct RowRead {
  int64_t file;
  int64_t row;
  void* to;
};

/// Told of bytes [first, first + count) behind RowRead::to of read number `read` once they are in place; each byte
/// once, in any order. It may change them: nobody reads them any more.
using Arrived = std::function<void(size_t read, int64_t first, int64_t count)>;

/// Reads rows as the layout's type says them in memory. Files are opened when first needed; a bounded number stays
/// open.
class RowReader {
 public:
  virtual ~RowReader() = default;
  /// Rows in the order of file and row are read fastest, boxes of one chunk together. `arrived` may be empty.
  /// Error(kIo), Error(kBadData), naming file, dataset and row.
  virtual void read(std::span<const RowRead> rows, std::span<const RowBox> boxes, const Arrived& arrived) = 0;
};

/// Number of files that are kept open.
inline constexpr size_t kMostOpenFiles = 64;

/// Files opened for reading when first asked for. Any number of threads at once.
class OpenFiles {
 public:
  /// Those of all arrays.
  explicit OpenFiles(const std::vector<RowFile>& files);
  int64_t number_of(const std::string& path) const;
  std::shared_ptr<const PosixFile> get(int64_t number);

 private:
  std::vector<std::string> paths_;  // in their order
  std::mutex mutex_;                // guards open_
  LruCache<const PosixFile> open_{kMostOpenFiles};
};

/// Reads contiguous, chunked and filtered layouts by pread, in pieces that stay in the cache until they are told of.
/// Any number of threads at once.
class DirectRowReader : public RowReader {
 public:
  /// No layout is opaque or joined. `open`, and `buffers` for chunks: shared with the readers of other datasets of the
  /// same files.
  explicit DirectRowReader(std::vector<RowFile> files, std::shared_ptr<OpenFiles> open = nullptr,
                           std::shared_ptr<TensorPool> buffers = nullptr);
  void read(std::span<const RowRead> rows, std::span<const RowBox> boxes, const Arrived& arrived) override;
  /// Bytes read from files so far.
  int64_t bytes_read() const { return bytes_read_; }

 private:
  const std::vector<RowFile> files_;
  const std::shared_ptr<OpenFiles> open_;
  std::vector<int64_t> numbers_;  // of the files in open_
  const std::shared_ptr<TensorPool> buffers_;
  std::atomic<int64_t> bytes_read_{0};
};

}  // namespace vit_hybrid::data
