// What HDF5 tells of a dataset: its ArrayLayout.
#pragma once

#include <string>

#include "data/reading/array_layout.h"

namespace vit_hybrid::data {

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

}  // namespace vit_hybrid::data
