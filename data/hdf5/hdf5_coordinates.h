// Finding and reading of coordinates and times: attached dimension scales first, then datasets by their names.
#pragma once

#include <string>
#include <vector>

#include "data/datasets/coordinates.h"
#include "data/hdf5/hdf5_open.h"

namespace vit_hybrid::data {

/// The dims of a dataset that rows and columns of fields lie along; those of (time, channel, latitude, longitude).
struct GridDims {
  size_t latitude = 2;
  size_t longitude = 3;
};

/// The coordinates of two dims: the values of a dimension scale attached to the dim that is named latitude or lat
/// (longitude, lon) or has such units, else those of a dataset of numbers of this name beside the dataset or in the
/// root group, which has as many values as the dim. Dimensions of netCDF that are no variables have none. Error
/// (kBadData) for other units than degrees, dims the other way round, or points that check_grid() refuses; `path` is
/// the file's.
Grid hdf5_grid(hid_t file, hid_t dataset, const std::string& path, const GridDims& dims = {});

/// What the dims of a dataset count, by the names and units of their dimension scales, else by their labels.
std::vector<DimKind> hdf5_dim_kinds(hid_t dataset);

/// The values of the first scale of numbers that is attached to `dim` and has one for each index, and its attributes;
/// empty without one.
StoredTimes hdf5_scale_values(hid_t dataset, size_t dim);

/// What dimension scales, labels and datasets named latitude, lat, longitude or lon tell of a dataset of four dims; of
/// others the shape alone. The names of channels are not looked for.
FieldOrder hdf5_field_order(hid_t file, hid_t dataset);

/// Of the first scale of numbers that is attached to the first dim and has a value for each row; kind kNone without
/// one. Error(kBadData), naming `where`, if dates do not ascend: rows that follow each other would be no pairs.
TimeAxis hdf5_time_axis(hid_t dataset, const std::string& where);

}  // namespace vit_hybrid::data
