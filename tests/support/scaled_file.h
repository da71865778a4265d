// An HDF5 file whose fields have dimension scales, as makani and netCDF write them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace vit_hybrid::testing {

/// Names and units of the scales of rows and columns.
struct GridScales {
  const char* rows = "lat";
  const char* row_units = "degrees_north";
  const char* columns = "lon";
  const char* column_units = "degrees_east";
};

/// Writes `fields` (time, channel, lat, lon) float32 in gzipped chunks of two times with the scales time, channel (the
/// names, with the fill value "none"), lat and lon attached and labels for all dims; a group "grid" with an attribute
/// of its own and a dataset in it; a soft link "state" to the fields; and an empty attribute of the file. The values of
/// time are `times`, or 0, 0.5, 1, ..., in `time_units` if there are any.
void write_scaled_file(const std::string& path, const at::Tensor& fields, const std::vector<std::string>& channels,
                       const std::vector<double>& times = {}, const GridScales& grid = {},
                       const std::string& time_units = {});

/// The name of the dataset that the first entry of the scale's REFERENCE_LIST points to.
std::string first_user_of_scale(const std::string& path, const std::string& scale);

}  // namespace vit_hybrid::testing
