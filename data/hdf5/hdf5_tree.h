// The objects of an HDF5 file: its tree, and a description of its datasets.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "data/hdf5/hdf5_layout.h"

namespace vit_hybrid::data {

/// Texts, integers that fit 64 bits, floating-point numbers and lists of them; attributes of other types are left out.
using Hdf5AttributeMap = std::map<std::string, std::variant<std::string, int64_t, double, std::vector<double>>>;

struct Hdf5TreeDataset {
  std::string name;  ///< with its groups, without a '/' before it
  std::vector<int64_t> shape;
  at::ScalarType type = at::kFloat;
  /// Of the first value in the file, where the dataset is one run of values as they are in memory; else -1.
  int64_t offset = -1;
  std::string why_not;  ///< where offset is -1: "filter deflate", "chunks"
  Hdf5AttributeMap attributes;
};

struct Hdf5Tree {
  int64_t file_bytes = 0;
  Hdf5AttributeMap attributes;
  std::vector<Hdf5TreeDataset> datasets;  ///< in ascending order of names
};

/// Describes the file on this rank alone (main thread), with those of the named attributes that file and datasets have:
/// HDF5 survives damaged files better where it is asked by name. Error(kMissingInput) without it, Error(kBadData) if it
/// is no HDF5 file or a dataset in it ends behind the end of the file.
Hdf5Tree read_hdf5_tree(const std::string& path, const std::vector<std::string>& file_attributes,
                        const std::vector<std::string>& dataset_attributes);

struct Hdf5Description {
  std::string name;  ///< with its groups, without a '/' before it
  std::vector<int64_t> shape;
  std::string type;          ///< as stored: "32-bit float, little-endian"
  bool is_linked = false;    ///< it lies in another file
  bool has_numbers = false;  ///< `layout` is set
  ArrayLayout layout;
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
