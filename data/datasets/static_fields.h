// Static fields: what does not change with time (orography, land-sea mask), read by name and made ready for the model.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "data/datasets/coordinates.h"
#include "data/reading/row_reader.h"

namespace vit_hybrid::data {

struct StaticFields {
  std::vector<std::string> names;  ///< of the channels
  at::Tensor values;               ///< [channels, H, W] float32, ready for the model
};

/// The fields `names`, each of the first of files, Zarr stores, or the first ones of folders of them, that has it, by
/// the names of find_static_field(); `variables` is FieldQuery::variables. Each is standardised over its own points,
/// all of one weight, to mean 0 and standard deviation 1, and keeps its name; but the land-sea mask (lsm,
/// land_sea_mask, sftlf), m in [0, 1] or %, is the two channels lsm, m, and sea, 1 - m, as makani has them. On one
/// process alone (main thread). Error(kUsage) for two names of one field; Error(kBadData) where a field is not there,
/// has other points than `grid`, as far as both are known, or another shape than `shape`, [H, W], a value is missing or
/// not finite, or all are the same; and as list_weather_files() and the readers do.
StaticFields read_static_fields(const std::vector<std::string>& paths, const std::vector<std::string>& names,
                                const std::string& variables, const Grid& grid, const std::vector<int64_t>& shape);

/// The reader of one array alone, by HDF5 where nothing else can (main thread). Errors as require_readable()'s.
std::unique_ptr<RowReader> array_reader(const RowFile& file);

/// The values of an array of inspect_static_fields() of `file`: [latitudes, longitudes] float32, unpacked, NaN where
/// they are missing. On one process alone. Errors as require_readable()'s and the readers'.
at::Tensor read_static_values(const RowFile& file);

/// Channels that a field of this name becomes there: two of the land-sea mask. Pure.
int64_t num_static_channels(const std::string& name);

}  // namespace vit_hybrid::data
