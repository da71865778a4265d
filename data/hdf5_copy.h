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
/// allocated and not written. References to objects (dimension scales) are made to point into the new file. On this
/// rank alone (main thread), by HDF5's default driver. Error(kBadData), Error(kCannotCreate), Error(kIo).
void copy_hdf5_structure(const std::string& from, const std::string& to, const Hdf5Rewrite& rewrite);

}  // namespace vit_hybrid::data
