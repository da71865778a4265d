// The latitudes and longitudes that an HDF5 file gives for a dataset of fields, and what it tells of the order of the
// dims. For data/hdf5_* only.
#pragma once

#include <string>

#include "data/datasets/field_order.h"
#include "data/datasets/grid.h"
#include "data/hdf5/hdf5_handle.h"

namespace vit_hybrid::data {

/// Those of the third and fourth dim of a dataset (time, channel, latitude, longitude): the values of a dimension scale
/// attached to the dim that is named latitude or lat (longitude, lon) or has such units, else those of a dataset of
/// numbers of this name beside the dataset or in the root group, which has as many values as the dim. Dimensions of
/// netCDF that are no variables have none. Error(kBadData) for other units than degrees, dims the other way round, or
/// points that check_grid() refuses; `path` is the file's.
Grid hdf5_grid(hid_t file, hid_t dataset, const std::string& path);

/// What dimension scales, labels and datasets named latitude, lat, longitude or lon tell of a dataset of four dims; of
/// others the shape alone. The names of channels are not looked for.
FieldOrder hdf5_field_order(hid_t file, hid_t dataset);

}  // namespace vit_hybrid::data
