// The variables of an HDF5 or NetCDF-4 file that hold fields, an array a quantity.
#pragma once

#include <string>
#include <vector>

#include "data/datasets/field_catalogue.h"

namespace vit_hybrid::data {

/// The datasets of numbers in the root group of at least two dims, in order of names, on this rank alone (main
/// thread); those that hold no fields have no FieldVariable::dims. Errors as of inspect_dataset().
std::vector<FieldVariable> hdf5_field_variables(const std::string& path);

/// The array of one of them with its dims, packing, unit (ArrayLayout::attribute), times and grid; `is_whole`: and
/// where its values lie. Errors as of inspect_dataset(), hdf5_time_axis() and hdf5_grid(); Error(kBadData) where its
/// values are not packed by CF's rules.
ArrayLayout inspect_hdf5_variable(const std::string& path, const FieldVariable& variable, bool is_whole);

/// The times of the rows of a dataset, or the coordinate of another dim, of its first scale that has a number for each.
StoredTimes hdf5_times(const std::string& path, const std::string& dataset, size_t dim = 0);

}  // namespace vit_hybrid::data
