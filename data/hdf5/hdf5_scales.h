// Dimension scales of HDF5 as its specification has them: read, written, and given to a forecast's file.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_open.h"
#include "src/base/partition.h"

namespace vit_hybrid::data {

/// Attributes by which the HDF5 dimension scale specification ties a dataset to its scales.
inline constexpr const char* kHdf5ScaleList = "DIMENSION_LIST";    ///< of a dataset: the scales of each dim
inline constexpr const char* kHdf5DimLabels = "DIMENSION_LABELS";  ///< of a dataset: a text for each dim
inline constexpr const char* kHdf5DatasetList = "REFERENCE_LIST";  ///< of a scale: the datasets with their dims

/// Name of an object with its groups, "/grid/lat"; empty if it has none.
std::string hdf5_object_name(hid_t object);

/// The scales that are attached to each dim of the dataset, opened; none where the list of them cannot be read.
/// Error(kBadData) where hdf5_check_storage() refuses one, or for more than 2,000 of them.
std::vector<std::vector<Hid>> hdf5_attached_scales(hid_t dataset);

/// Of each dim of the dataset the name of the first scale attached to it (without groups), else its label, else
/// nothing.
std::vector<std::string> hdf5_dimension_names(hid_t dataset);

/// The texts of the first scale of texts attached to `dim`, joined with commas ("u10,v10,..."); empty without one.
std::string hdf5_scale_texts(hid_t dataset, size_t dim);

/// A dataset, and for each dim the paths of the scales that it is to have ("/time").
struct Hdf5Scaled {
  std::string dataset;
  std::vector<std::vector<std::string>> scales;
};

/// Makes datasets of the file scales of the dims of others, none of which is tied to anything yet. On this rank alone
/// (main thread). Error(kIo).
void attach_hdf5_scales(const std::string& path, const std::vector<Hdf5Scaled>& datasets);

/// A dataset (time, ...) of `from`, and the one of the same name and dims that follows it in `to`: its rows are those
/// of the source from `first_row` on, each `stride` behind the one before, and rows behind the end of `run`, the rows
/// of the source that follow each other without a gap in time (first_row is behind its begin).
struct Hdf5ScaleCopy {
  std::string from;
  std::string to;
  std::string dataset;
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t stride = 1;
  Range run = {0, std::numeric_limits<int64_t>::max()};  ///< or the end of the source
};

/// Where the source has dimension scales or labels, gives the dataset of `to` the same: scales of the first dim with
/// the values of its rows, continued evenly behind the end of the run; those of other dims whole; and the attributes
/// of the source that it has not yet. Leaves `to` alone where the source has neither. Returns one line for each thing
/// that cannot be carried over, which is then left out. On this rank alone (main thread), by HDF5's default driver, by
/// which this process may have `to` open already. Error(kBadData), Error(kIo).
std::vector<std::string> copy_hdf5_scales(const Hdf5ScaleCopy& copy);

/// Reads back, from the files as they are now, what copy_hdf5_scales() did: Error(kIo) names a scale or an attribute
/// that is not as it was copied. On this rank alone (main thread), when no writer has `to` open any more.
void verify_hdf5_scales(const Hdf5ScaleCopy& copy);

}  // namespace vit_hybrid::data
