// Dimension scales of HDF5 datasets: the names of their dims, texts that name what lies along one, and attaching. For
// data/hdf5_* only.
#pragma once

#include <string>
#include <vector>

#include "data/hdf5/hdf5_handle.h"

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

/// Makes the datasets that are named for each dim scales, where they are none, and ties them to the dataset, which is
/// in the same file. Neither it nor they are tied to anything yet. Error(kIo): "cannot <doing>: ...".
void hdf5_attach_scales(hid_t dataset, const std::vector<std::vector<std::string>>& names, const std::string& doing);

}  // namespace vit_hybrid::data
