// Dimension scales of HDF5 datasets: the names of their dims, and texts that name what lies along one. For data/hdf5_*
// only.
#pragma once

#include <string>
#include <vector>

#include "data/hdf5_handle.h"

namespace vit_hybrid::data {

/// Of each dim of the dataset the name of the first scale attached to it (without groups), else its label, else
/// nothing.
std::vector<std::string> hdf5_dimension_names(hid_t dataset);

/// The texts of the first scale of texts attached to `dim`, joined with commas ("u10,v10,..."); empty without one.
std::string hdf5_scale_texts(hid_t dataset, size_t dim);

}  // namespace vit_hybrid::data
