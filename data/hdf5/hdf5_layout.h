// What HDF5 tells of a dataset: its ArrayLayout; and which variables of an HDF5 or NetCDF-4 file hold fields, an array
// a quantity.
#pragma once

#include <string>
#include <vector>

#include "data/reading/array_layout.h"

namespace vit_hybrid::data {

struct FieldVariable;  // data/datasets/field_catalogue.h

/// Describes `dataset` of the file, on this rank alone (main thread), with the text attribute of the dataset or file if
/// `attribute` is not empty and it is there; for "channels" also the texts of a dimension scale of dim 1, the grid and
/// the times. Error(kMissingInput) without the file, Error(kBadData) if it is no HDF5 file, is truncated or has no such
/// dataset of numbers (the hint names those it has), and where channels were asked for and require_channels_first()
/// refuses their order.
ArrayLayout inspect_dataset(const std::string& path, const std::string& dataset, const std::string& attribute = {});

/// The same but for the storage, which takes seconds to look for in a file of very many chunks: shape, type and what
/// belongs to the attribute.
ArrayLayout outline_dataset(const std::string& path, const std::string& dataset, const std::string& attribute = {});

/// Whether the file has an object of this name, by any way that HDF5 finds it: "/labels" and the name of a soft link
/// too. On this rank alone (main thread). Errors of the file as inspect_dataset()'s.
bool has_hdf5_object(const std::string& path, const std::string& name);

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
