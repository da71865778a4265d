// Static fields: found and read by the readers of weather, checked against the data's grid, scaled.
#include "data/datasets/static_fields.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <memory>
#include <system_error>
#include <utility>

#include "data/datasets/field_catalogue.h"
#include "data/datasets/year_files.h"
#include "data/hdf5/hdf5_rows.h"
#include "data/reading/joined_rows.h"
#include "data/reading/row_reader.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

constexpr const char* kMask = "lsm";

// A file is taken whatever it is called.
std::string first_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) ? path : list_weather_files(path).front();
}

[[noreturn]] void fail_static_field(const RowFile& file, const std::string& what, const std::string& hint) {
  throw Error(ErrorClass::kBadData, str(file.path, ": static field '", shown(file.layout.name), "' ", what), hint);
}

void require_points(const RowFile& file, const Grid& grid, const std::vector<int64_t>& shape) {
  const ArrayLayout& array = file.layout;
  const std::vector<int64_t> own = {array.shape[dim_of(array.dims, DimKind::kLatitude)],
                                    array.shape[dim_of(array.dims, DimKind::kLongitude)]};
  const char* const hint = "static fields have the data's points in the same order";
  if (own != shape) {
    fail_static_field(
        file, str("has ", join(own, " x "), " latitudes and longitudes, the data have ", join(shape, " x ")), hint);
  }
  if (same_grid(array.grid, grid)) {
    return;
  }
  const std::vector<double> turned(array.grid.latitudes.rbegin(), array.grid.latitudes.rend());
  if (!same_points(array.grid.latitudes, grid.latitudes) && same_points(turned, grid.latitudes)) {
    fail_static_field(file,
                      str("has its latitudes from ", array.grid.latitudes.front(), " to ", array.grid.latitudes.back(),
                          ", the data the other way round"),
                      "turn it: `cdo invertlat OLD.nc NEW.nc`, or isel(latitude=slice(None, None, -1)) of xarray");
  }
  fail_static_field(file, str("has ", grid_text(array.grid), ", the data have ", grid_text(grid)), hint);
}

// [H, W], each value finite, not all the same.
at::Tensor read_field(const RowFile& file) {
  const at::Tensor field = read_static_values(file);
  const float* const begin = field.const_data_ptr<float>();
  const float* const end = begin + field.numel();
  const float* const odd = std::find_if_not(begin, end, [](float value) { return std::isfinite(value); });
  if (odd != end) {
    fail_static_field(file,
                      str("is ", std::isnan(*odd) ? "missing or nan" : "infinite", " at row ",
                          (odd - begin) / field.size(1), ", column ", (odd - begin) % field.size(1)),
                      "the model needs a value at each point: fill it, for example with 0");
  }
  if (std::adjacent_find(begin, end, std::not_equal_to<>()) == end) {
    fail_static_field(file, str("is ", *begin, " everywhere"), "it tells the model nothing: leave it away");
  }
  return field;
}

// Of float32 values, all of one weight.
void standardise(const at::Tensor& field, float* to) {
  const float* const begin = field.const_data_ptr<float>();
  const float* const end = begin + field.numel();
  const auto count = static_cast<double>(field.numel());
  double sum = 0.0, squares = 0.0;
  std::for_each(begin, end, [&](float value) { sum += value; });
  const double mean = sum / count;
  std::for_each(begin, end, [&](float value) { squares += (value - mean) * (value - mean); });
  const double scale = 1.0 / std::sqrt(squares / count);
  std::transform(begin, end, to, [&](float value) { return static_cast<float>((value - mean) * scale); });
}

// Of `field` the mask m, and behind it 1 - m.
void place_mask(const RowFile& file, const at::Tensor& field, float* to) {
  constexpr float kPacked = 1e-3F;  // an error that packed values have
  const float unit = file.layout.attribute == "%" ? 0.01F : 1.0F;
  const float* const values = field.const_data_ptr<float>();
  for (int64_t i = 0; i < field.numel(); ++i) {
    const float value = values[i] * unit;
    if (value < -kPacked || value > 1.0F + kPacked) {
      fail_static_field(file,
                        str("is ", values[i], " at row ", i / field.size(1), ", column ", i % field.size(1),
                            "; a land-sea mask is in [0, 1]"),
                        "0 is sea, 1 is land; one in % has the attribute units = \"%\"");
    }
    to[i] = std::clamp(value, 0.0F, 1.0F);
    to[i + field.numel()] = 1.0F - to[i];
  }
}

bool is_mask(const std::string& name) {
  return canonical_channel(name) == kMask;
}

}  // namespace

std::unique_ptr<RowReader> array_reader(const RowFile& file) {
  require_readable(file.layout, str(file.path, ": dataset '", shown(file.layout.name), "'"));
  if (file.layout.storage == ArrayLayout::Storage::kOpaque) {
    return make_independent_row_reader({file});
  }
  return std::make_unique<DirectRowReader>(std::vector{file});
}

at::Tensor read_static_values(const RowFile& file) {
  return read_static_field(file.layout, *array_reader(file));
}

int64_t num_static_channels(const std::string& name) {
  return is_mask(name) ? 2 : 1;
}

StaticFields read_static_fields(const std::vector<std::string>& paths, const std::vector<std::string>& names,
                                const std::string& variables, const Grid& grid, const std::vector<int64_t>& shape) {
  VH_ASSERT(shape.size() == 2, str("static fields of shape ", join(shape)));
  const MemoryScope scope(MemoryClass::kData);
  std::vector<std::string> files;
  std::transform(paths.begin(), paths.end(), std::back_inserter(files), &first_file);
  const std::vector<RowFile> arrays = inspect_static_fields(files, names, {.variables = variables});
  StaticFields fields;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto end = arrays.begin() + static_cast<int64_t>(i);
    const auto same = std::find_if(arrays.begin(), end, [&](const RowFile& other) {
      return other.path == end->path && other.layout.name == end->layout.name;
    });
    if (same != end) {
      throw Error(ErrorClass::kUsage,
                  str("--static names '", shown(names[static_cast<size_t>(same - arrays.begin())]), "' and '",
                      shown(names[i]), "', which are one field of ", end->path),
                  "give each field once");
    }
    if (is_mask(names[i])) {
      fields.names.insert(fields.names.end(), {kMask, "sea"});
    } else {
      fields.names.push_back(names[i]);
    }
  }
  fields.values = at::empty({std::ssize(fields.names), shape[0], shape[1]}, at::kFloat);
  auto* to = fields.values.mutable_data_ptr<float>();
  for (size_t i = 0; i < names.size(); ++i) {
    const RowFile& array = arrays[i];
    require_points(array, grid, shape);
    const at::Tensor field = read_field(array);
    if (is_mask(names[i])) {
      place_mask(array, field, to);
      to += 2 * field.numel();
    } else {
      standardise(field, to);
      to += field.numel();
    }
  }
  return fields;
}

}  // namespace vit_hybrid::data
