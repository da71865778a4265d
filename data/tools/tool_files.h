// The files of the tools for data: lists of inputs, room and folders for outputs, and rows shared out among ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_layout.h"
#include "src/base/partition.h"

namespace vit_hybrid::comm {
class MpiGroup;
}

namespace vit_hybrid::data {

/// The files of `words`: a file is itself, a folder the files in it with names of HDF5 (has_hdf5_name()) in order of
/// names (not those in folders below it). Looked up by rank 0 for all. Collective over `group`; errors are agreed:
/// Error(kMissingInput) for what is not there and a folder without such files.
std::vector<std::string> list_hdf5_inputs(const comm::MpiGroup& group, const std::vector<std::string>& words);

/// The same with the Zarr stores of a folder, which may be one: list_weather_files().
std::vector<std::string> list_weather_inputs(const comm::MpiGroup& group, const std::vector<std::string>& words);

/// Makes the folder and those above it. Error(kCannotCreate).
void make_output_folder(const std::string& folder);

/// A folder for outputs, made with those above it. At its end what it made goes again where nothing is in it: of work
/// that failed before its first file nothing is left.
class OutputFolder {
 public:
  /// Error(kCannotCreate). Of a path with ".." in it nothing is taken away.
  explicit OutputFolder(const std::string& folder);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

 private:
  std::vector<std::string> made_;  // the innermost first
};

/// The folder itself or, where it is still to be made, the nearest one above it that is there; of "" the current one.
std::string existing_part(const std::string& folder);

/// Error(kCannotCreate) if the file system of existing_part(folder) has fewer than `bytes` bytes free.
void check_room(const std::string& folder, int64_t bytes);

/// Rows that lie in one chunk together, where chunks are read whole; else, and where they would need more than 1
/// GiB, 1.
inline int64_t rows_read_together(const ArrayLayout& layout) {
  constexpr int64_t kMostBytes = int64_t{1} << 30;
  const bool is_whole = !layout.chunk.empty() && layout.storage != ArrayLayout::Storage::kChunked;
  const int64_t rows = is_whole ? layout.chunk.front() : 1;
  return rows * layout.row_bytes() <= kMostBytes ? rows : 1;
}

/// `count` rows in `parts` parts that begin at multiples of `unit` rows.
class RowGroups {
 public:
  RowGroups(int64_t count, int64_t unit, int64_t parts)
      : count_(count), unit_(unit), units_((count + unit - 1) / unit, parts) {}

  int64_t count() const { return count_; }
  int64_t unit() const { return unit_; }
  int64_t parts() const { return units_.parts(); }
  Range part(int64_t i) const {
    const Range part = units_.part(i);
    return {std::min(part.begin * unit_, count_), std::min(part.end * unit_, count_)};
  }
  /// No part has more rows.
  int64_t largest() const { return units_.largest() * unit_; }

 private:
  int64_t count_;
  int64_t unit_;
  Partition units_;
};

}  // namespace vit_hybrid::data
