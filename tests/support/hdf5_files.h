// HDF5 files of every kind of layout, written by one process for tests of reading.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace vit_hybrid::testing {

/// 0, 1, 2, ... in row-major order: every value says where it belongs.
at::Tensor counted(const std::vector<int64_t>& shape, at::ScalarType type = at::kFloat);

enum class Stored { kAsInMemory, kBigEndian, kHalf };

struct TestDataset {
  std::string name;
  at::Tensor values;
  std::vector<int64_t> chunk = {};  ///< empty: contiguous
  int gzip = 0;                     ///< level, for chunked datasets; 0: none
  Stored stored = Stored::kAsInMemory;
  bool shuffle = false;       ///< bytes of equal place together, before gzip
  bool checksum = false;      ///< Fletcher-32, after gzip
  bool scale_offset = false;  ///< whole numbers only; a filter that only HDF5 undoes
  int64_t rows_written = -1;  ///< only the first rows; -1: all
};

/// Makes `path` with the dataset `name`, which is virtual: the datasets `name` of `sources`, all of the shape `shape`,
/// one after the other along the first dim.
void write_virtual_file(const std::string& path, const std::string& name, const std::vector<std::string>& sources,
                        const std::vector<int64_t>& shape);

/// Adds to the file `path` the external link `name`, which leads to the dataset `name` of the file `target`.
void add_external_link(const std::string& path, const std::string& name, const std::string& target);

/// Writes the datasets, and the file's attribute `channels` as an array of texts if it is not empty.
void write_hdf5_file(const std::string& path, const std::vector<TestDataset>& datasets,
                     const std::vector<std::string>& channels = {});

}  // namespace vit_hybrid::testing
