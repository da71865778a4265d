// A copy of an HDF5 file in which one dataset gets another layout or type, and its values later.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace vit_hybrid::data {

/// The dataset that is made anew.
struct Hdf5Rewrite {
  std::string dataset;
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> chunk;  ///< empty: contiguous
  int64_t alignment = 4096;    ///< of the first byte of the dataset, or of each of its chunks
};

/// Makes the file `to` with all groups, links, attributes and datasets of `from`; the storage of the one dataset is
/// allocated and not written. References (dimension scales) are made to point into the new file, and datasets whose
/// values lie in other files (virtual ones, external storage) become real ones: what they are made of must be there,
/// and be numbers. On this rank alone (main thread), by HDF5's default driver. Error(kBadData), Error(kCannotCreate),
/// Error(kIo).
void copy_hdf5_structure(const std::string& from, const std::string& to, const Hdf5Rewrite& rewrite);

/// Opens both files anew and compares all but the values of the one dataset: links, kinds of objects, attributes, and
/// types, shapes, fill values and values of datasets, variable-length ones by content, references by the names of what
/// they refer to. Error(kIo) names what differs or cannot be read. On this rank alone (main thread).
void verify_hdf5_copy(const std::string& from, const std::string& to, const Hdf5Rewrite& rewrite);

}  // namespace vit_hybrid::data
