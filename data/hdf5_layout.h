// Hdf5Layout: what a dataset of an HDF5 file is, and where its bytes lie in the file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace vit_hybrid::data {

/// Described once by one rank, and sent to the others (hdf5_layout_bytes.h): nobody else needs to open the file with
/// HDF5.
struct Hdf5Layout {
  enum class Storage {
    kContiguous,  ///< one run of bytes
    kChunked,     ///< whole chunks at their offsets
    kOpaque,      ///< only HDF5 can read it: filtered (compressed), converted, not wholly allocated, ...
  };
  std::vector<int64_t> shape;
  at::ScalarType type = at::kFloat;  ///< of the values once in memory
  Storage storage = Storage::kOpaque;
  std::string opaque_because;  ///< why only HDF5 can read it: "filter deflate", "big-endian values"
  int64_t file_bytes = 0;
  int64_t offset = 0;                  ///< kContiguous: of the first value
  std::vector<int64_t> chunk;          ///< shape of a chunk, where the dataset is chunked
  std::vector<int64_t> chunk_offsets;  ///< kChunked: of each chunk, in row-major order of the chunks' grid
  std::string attribute;               ///< value of the text attribute asked for, or empty

  int64_t num_rows() const { return shape.empty() ? 1 : shape.front(); }
  /// Bytes in memory of one index of the first dim.
  int64_t row_bytes() const;
  bool operator==(const Hdf5Layout&) const = default;
};

/// Describes `dataset` of the file, on this rank alone (main thread), with the text attribute of the dataset or file if
/// `attribute` is not empty and it is there. Error(kMissingInput) without the file, Error(kBadData) if it is no HDF5
/// file, is truncated or has no such dataset of numbers (the hint names those it has).
Hdf5Layout inspect_dataset(const std::string& path, const std::string& dataset, const std::string& attribute = {});

}  // namespace vit_hybrid::data
