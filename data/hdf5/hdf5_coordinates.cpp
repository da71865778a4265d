// Finding and reading of coordinates: attached dimension scales first, then datasets by their names.
#include "data/hdf5/hdf5_coordinates.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "data/hdf5/hdf5_open.h"
#include "data/hdf5/hdf5_scales.h"
#include "data/hdf5/hdf5_virtual.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

constexpr int64_t kMostPoints = int64_t{1} << 20;  // more are no grid's

struct Axis {
  const char* name;
  DimKind kind;
  std::array<std::string_view, 2> names;
  const char* unit;  // the usual one
};
constexpr Axis kLatitude{"latitude", DimKind::kLatitude, {"latitude", "lat"}, "degrees_north"};
constexpr Axis kLongitude{"longitude", DimKind::kLongitude, {"longitude", "lon"}, "degrees_east"};

std::string units_of(hid_t object) {
  return hdf5_text_attribute(object, "units");
}

std::string name_of(hid_t object) {
  const std::string name = hdf5_object_name(object);
  return name.substr(name.rfind('/') + 1);
}

bool is_of(const Axis& axis, hid_t scale) {
  return dim_kind(name_of(scale), units_of(scale)) == axis.kind;
}

// What netCDF makes for a dim that has no variable: a scale whose values mean nothing.
bool is_mere_dimension(hid_t scale) {
  return hdf5_text_attribute(scale, "NAME").starts_with("This is a netCDF dimension but not a netCDF variable");
}

// Numbers along one dim, as many as there are rows or columns.
bool has_points(hid_t dataset, int64_t count) {
  const Hid type(H5Dget_type(dataset), &H5Tclose);
  const Hid space(H5Dget_space(dataset), &H5Sclose);
  const H5T_class_t kind = H5Tget_class(type.get());
  return (kind == H5T_FLOAT || kind == H5T_INTEGER) && count <= kMostPoints &&
         hdf5_shape(space.get()) == std::vector<int64_t>{count} && !is_mere_dimension(dataset);
}

std::vector<double> read_points(const Axis& axis, hid_t dataset, int64_t count, const std::string& path) {
  const std::string where = str(path, ": '", shown(hdf5_object_name(dataset)), "'");
  const std::string units = units_of(dataset);
  if (!units.empty() && dim_kind("", units) != axis.kind && units != "degrees") {
    throw Error(ErrorClass::kBadData, str(where, " has the units '", shown(units), "'"),
                str("a ", axis.name, " is in ", axis.unit, ", or names no units"));
  }
  hdf5_require_parts(dataset, where);
  std::vector<double> points(static_cast<size_t>(count));
  if (H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, points.data()) < 0) {
    throw Error(ErrorClass::kBadData, str(where, " cannot be read: ", hdf5_reason()),
                "the file is damaged: copy or make it again");
  }
  return points;
}

// A dataset of one of the axis's names in a group of the file.
Hid named_dataset(hid_t file, const std::string& group, const Axis& axis) {
  for (const std::string_view name : axis.names) {
    const std::string full = str(group, name);
    if (H5Lexists(file, full.c_str(), H5P_DEFAULT) > 0) {
      Hid object(H5Oopen(file, full.c_str(), H5P_DEFAULT), &H5Oclose);
      if (object && H5Iget_type(object.get()) == H5I_DATASET) {
        hdf5_check_storage(object.get(), str(hdf5_file_name(object.get()), ": dataset '", shown(full), "'"));
        return object;
      }
    }
  }
  return {};
}

// The first of those that `is_wanted`, beside the dataset and in the root group: of the file that it lies in, then of
// one that merely links to it.
template <class Predicate>
Hid dataset_beside(hid_t file, hid_t dataset, const Axis& axis, const Predicate& is_wanted) {
  const Hid own(H5Iget_file_id(dataset), &H5Fclose);
  const std::string name = hdf5_object_name(dataset);
  for (const hid_t place : {own.get(), file}) {
    for (const std::string& group : {name.substr(0, name.rfind('/') + 1), std::string("/")}) {
      Hid found = named_dataset(place, group, axis);
      if (found && is_wanted(found.get())) {
        return found;
      }
    }
  }
  return {};
}

std::vector<double> points_of(hid_t file, hid_t dataset, const Axis& axis, size_t dim, int64_t count,
                              const std::string& path) {
  const auto scales = hdf5_attached_scales(dataset);
  for (const Hid& scale : scales[dim]) {
    if (is_of(axis, scale.get()) && has_points(scale.get(), count)) {
      return read_points(axis, scale.get(), count, path);
    }
    const Axis& other = axis.kind == DimKind::kLatitude ? kLongitude : kLatitude;
    if (is_of(other, scale.get())) {
      throw Error(ErrorClass::kBadData,
                  str(path, ": dim ", dim, " of '", hdf5_object_name(dataset), "' is a ", other.name, " ('",
                      shown(name_of(scale.get())), "')"),
                  "needed is (time, channel, latitude, longitude)");
    }
  }
  const Hid found = dataset_beside(file, dataset, axis, [&](hid_t other) { return has_points(other, count); });
  return found ? read_points(axis, found.get(), count, path) : std::vector<double>{};
}

DimKind kind_of(const std::string& dim_name, const std::vector<Hid>& scales) {
  DimKind kind = dim_kind(dim_name, "");
  const auto is_open = [&] { return kind == DimKind::kUnknown || kind == DimKind::kOther; };
  for (size_t i = 0; i < scales.size() && is_open(); ++i) {
    kind = dim_kind(name_of(scales[i].get()), units_of(scales[i].get()));
  }
  return kind;
}

// Of the dataset of one of the axis's names; 0 without one.
int64_t num_named_points(hid_t file, hid_t dataset, const Axis& axis) {
  const Hid found = dataset_beside(file, dataset, axis, [](hid_t) { return true; });
  if (!found) {
    return 0;
  }
  const Hid space(H5Dget_space(found.get()), &H5Sclose);
  const std::vector<int64_t> shape = hdf5_shape(space.get());
  return shape.size() == 1 && has_points(found.get(), shape.front()) ? shape.front() : 0;
}

// Nothing where the scale is none of times.
std::vector<double> values_of(hid_t scale, int64_t count) {
  const Hid type(H5Dget_type(scale), &H5Tclose);
  const Hid space(H5Dget_space(scale), &H5Sclose);
  const H5T_class_t kind = H5Tget_class(type.get());
  std::vector<double> values;
  if ((kind == H5T_INTEGER || kind == H5T_FLOAT) && hdf5_shape(space.get()) == std::vector<int64_t>{count} &&
      !is_mere_dimension(scale)) {
    hdf5_require_parts(scale, str(hdf5_file_name(scale), ": scale '", shown(hdf5_object_name(scale)), "'"));
    values.resize(static_cast<size_t>(count));
    if (H5Dread(scale, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) {
      values.clear();
    }
  }
  return values;
}

}  // namespace

FieldOrder hdf5_field_order(hid_t file, hid_t dataset) {
  const Hid space(H5Dget_space(dataset), &H5Sclose);
  FieldOrder order;
  order.shape = hdf5_shape(space.get());
  if (order.shape.size() == kFieldDims) {
    const std::vector<DimKind> kinds = hdf5_dim_kinds(dataset);
    std::replace_copy(kinds.begin(), kinds.end(), order.kinds.begin(), DimKind::kOther, DimKind::kUnknown);
    order.num_latitudes = num_named_points(file, dataset, kLatitude);
    order.num_longitudes = num_named_points(file, dataset, kLongitude);
    H5Eclear2(H5E_DEFAULT);
  }
  return order;
}

std::vector<DimKind> hdf5_dim_kinds(hid_t dataset) {
  const auto scales = hdf5_attached_scales(dataset);
  const auto names = hdf5_dimension_names(dataset);
  std::vector<DimKind> kinds;
  for (size_t dim = 0; dim < names.size(); ++dim) {
    kinds.push_back(kind_of(names[dim], scales[dim]));
  }
  H5Eclear2(H5E_DEFAULT);
  return kinds;
}

StoredTimes hdf5_scale_values(hid_t dataset, size_t dim) {
  const Hid space(H5Dget_space(dataset), &H5Sclose);
  const auto shape = hdf5_shape(space.get());
  const auto scales = hdf5_attached_scales(dataset);
  StoredTimes found;
  for (size_t i = 0; dim < shape.size() && shape[dim] > 0 && i < scales[dim].size() && found.values.empty(); ++i) {
    const hid_t scale = scales[dim][i].get();
    found = {values_of(scale, shape[dim]), units_of(scale), hdf5_text_attribute(scale, "calendar"),
             hdf5_text_attribute(scale, kSimulation)};
  }
  H5Eclear2(H5E_DEFAULT);
  return found;
}

Grid hdf5_grid(hid_t file, hid_t dataset, const std::string& path, const GridDims& dims) {
  const Hid space(H5Dget_space(dataset), &H5Sclose);
  const std::vector<int64_t> shape = hdf5_shape(space.get());
  if (shape.size() <= std::max(dims.latitude, dims.longitude)) {
    return {};
  }
  Grid grid;
  grid.latitudes = points_of(file, dataset, kLatitude, dims.latitude, shape[dims.latitude], path);
  grid.longitudes = points_of(file, dataset, kLongitude, dims.longitude, shape[dims.longitude], path);
  H5Eclear2(H5E_DEFAULT);
  unwrap_longitudes(grid.longitudes);
  check_grid(grid, path);
  return grid;
}

TimeAxis hdf5_time_axis(hid_t dataset, const std::string& where) {
  return checked_time_axis(hdf5_scale_values(dataset, 0), where);
}

}  // namespace vit_hybrid::data
