// Hdf5Description: what a person wants to know of a dataset in an HDF5 file.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data/hdf5/hdf5_layout.h"

namespace vit_hybrid::data {

struct Hdf5Description {
  std::string name;  ///< with its groups, without a '/' before it
  std::vector<int64_t> shape;
  std::string type;          ///< as stored: "32-bit float, little-endian"
  bool is_linked = false;    ///< it lies in another file
  bool has_numbers = false;  ///< `layout` is set
  Hdf5Layout layout;
  std::string storage;               ///< "contiguous", "chunks (1, 8, 32, 64)", "virtual", "compact"
  std::vector<std::string> filters;  ///< in the order of writing: "shuffle", "deflate"
  int64_t stored_bytes = 0;          ///< in the file
  std::vector<std::string> dims;     ///< names of dimension scales or labels; empty texts where there are none
  std::string channels;              ///< names, separated by commas; empty if the file has none
  std::vector<std::pair<std::string, std::string>> attributes;  ///< those that are texts or single numbers
};

/// Datasets of the file in ascending order of names, then those of other files that it links to, on this rank alone
/// (main thread). Error(kMissingInput) without it, Error(kBadData) if it is no HDF5 file or truncated.
std::vector<Hdf5Description> describe_hdf5_file(const std::string& path);

}  // namespace vit_hybrid::data
