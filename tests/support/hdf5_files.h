// HDF5 files of every kind of layout, written by one process for tests of reading.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace vit_hybrid::testing {

enum class Stored { kAsInMemory, kBigEndian, kHalf };

struct TestDataset {
  std::string name;
  at::Tensor values;
  std::vector<int64_t> chunk = {};  ///< empty: contiguous
  int gzip = 0;                     ///< level, for chunked datasets; 0: none
  Stored stored = Stored::kAsInMemory;
};

/// Writes the datasets, and the file's attribute `channels` as an array of texts if it is not empty.
void write_hdf5_file(const std::string& path, const std::vector<TestDataset>& datasets,
                     const std::vector<std::string>& channels = {});

}  // namespace vit_hybrid::testing
