// The dimension scales, labels and further attributes of a dataset, for a dataset of another HDF5 file that goes on in
// time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vit_hybrid::data {

/// A dataset (time, ...) of `from`, and the one of the same name and dims that follows it in `to`: its rows are those
/// of the source from `first_row` on, and rows behind the end of the source.
struct Hdf5ScaleCopy {
  std::string from;
  std::string to;
  std::string dataset;
  int64_t first_row = 0;
  int64_t num_rows = 0;
};

/// Where the source has dimension scales or labels, gives the dataset of `to` the same: scales of the first dim with
/// the values of its rows, continued evenly behind the end of the source; those of other dims whole; and the attributes
/// of the source that it has not yet. Leaves `to` alone where the source has neither. Returns one line for each thing
/// that cannot be carried over, which is then left out. On this rank alone (main thread), by HDF5's default driver, by
/// which this process may have `to` open already. Error(kBadData), Error(kIo).
std::vector<std::string> copy_hdf5_scales(const Hdf5ScaleCopy& copy);

/// Reads back, from the files as they are now, what copy_hdf5_scales() did: Error(kIo) names a scale or an attribute
/// that is not as it was copied. On this rank alone (main thread), when no writer has `to` open any more.
void verify_hdf5_scales(const Hdf5ScaleCopy& copy);

}  // namespace vit_hybrid::data
