// Hdf5Tree: all datasets of an HDF5 file, with where their bytes lie, and the attributes of file and datasets.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

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

/// Describes the file on this rank alone (main thread), with all attributes. Error(kMissingInput) without it,
/// Error(kBadData) if it is no HDF5 file or a dataset in it ends behind the end of the file.
Hdf5Tree read_hdf5_tree(const std::string& path);

/// The same with those of the named attributes that file and datasets have: HDF5 survives damaged files better where
/// it is asked by name.
Hdf5Tree read_hdf5_tree(const std::string& path, const std::vector<std::string>& file_attributes,
                        const std::vector<std::string>& dataset_attributes);

}  // namespace vit_hybrid::data
