// The times of the rows of a dataset, by a dimension scale of its first dim. For data/hdf5_* only.
#pragma once

#include <string>

#include "data/datasets/time_axis.h"
#include "data/hdf5/hdf5_handle.h"

namespace vit_hybrid::data {

/// Of the first scale of numbers that is attached to the first dim and has a value for each row; kind kNone without
/// one. Error(kBadData), naming `where`, if dates do not ascend: rows that follow each other would be no pairs.
TimeAxis hdf5_time_axis(hid_t dataset, const std::string& where);

}  // namespace vit_hybrid::data
