// The walk over the root group, levels and names of channels, and the CF attributes of packed values.
#include "data/hdf5/hdf5_fields.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "data/datasets/year_files.h"
#include "data/hdf5/hdf5_coordinates.h"
#include "data/hdf5/hdf5_crash_guard.h"
#include "data/hdf5/hdf5_layout.h"
#include "data/hdf5/hdf5_open.h"
#include "data/hdf5/hdf5_scales.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

// What lies in other files is not opened before somebody asks for it: it may be anything.
herr_t note_root_name(hid_t, const char* name, const H5L_info_t* info, void* names) {
  if (info->type != H5L_TYPE_EXTERNAL) {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  }
  return 0;
}

// Where the object is a dataset of numbers with as many dims as one field has.
std::optional<FieldVariable> variable_of(hid_t file, const std::string& name) {
  const Hid object(H5Oopen(file, name.c_str(), H5P_DEFAULT), &H5Oclose);
  if (!object || H5Iget_type(object.get()) != H5I_DATASET) {
    return std::nullopt;
  }
  const Hid type(H5Dget_type(object.get()), &H5Tclose);
  const Hid space(H5Dget_space(object.get()), &H5Sclose);
  FieldVariable variable;
  variable.name = name;
  variable.shape = hdf5_shape(space.get());
  constexpr size_t kFewestDims = 2;
  if (!hdf5_stored_type(type.get()) || variable.shape.size() < kFewestDims) {
    return std::nullopt;
  }
  variable.dim_names = hdf5_dimension_names(object.get());
  variable.told = hdf5_dim_kinds(object.get());
  std::string channels = hdf5_text_attribute(object.get(), "channels");
  if (channels.empty() && variable.shape.size() == kFieldDims) {
    channels = hdf5_scale_texts(object.get(), 1);
  }
  variable.channels = names_in(channels);
  if (variable.shape.size() == kFieldDims && std::ssize(variable.channels) == variable.shape[1]) {
    variable.told[1] = DimKind::kChannel;
  } else {
    variable.channels.clear();
  }
  variable.dims = field_dims(variable.shape, variable.told);
  const auto level = std::find(variable.dims.begin(), variable.dims.end(), DimKind::kLevel);
  if (level != variable.dims.end()) {
    StoredTimes scale = hdf5_scale_values(object.get(), static_cast<size_t>(level - variable.dims.begin()));
    variable.levels = levels_in_hpa(std::move(scale.values), scale.units);
  }
  // Planes that nothing names cannot be asked for.
  const bool has_planes = std::any_of(variable.dims.begin(), variable.dims.end(), [](DimKind kind) {
    return kind == DimKind::kLevel || kind == DimKind::kChannel;
  });
  const bool can_be_asked_for = !has_planes || !variable.levels.empty() || !variable.channels.empty();
  if (!can_be_asked_for) {
    variable.dims.clear();
  }
  return variable;
}

std::optional<double> number_attribute(hid_t dataset, const char* name, const std::string& where) {
  if (H5Aexists(dataset, name) <= 0) {
    return std::nullopt;
  }
  const Hid attribute(H5Aopen(dataset, name, H5P_DEFAULT), &H5Aclose);
  const Hid type(H5Aget_type(attribute.get()), &H5Tclose);
  const Hid space(H5Aget_space(attribute.get()), &H5Sclose);
  const H5T_class_t kind = H5Tget_class(type.get());
  double value = 0.0;
  if ((kind != H5T_INTEGER && kind != H5T_FLOAT) || H5Sget_simple_extent_npoints(space.get()) != 1 ||
      H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, &value) < 0) {
    throw Error(ErrorClass::kBadData, str(where, ": the attribute ", name, " is not one number"),
                "scale_factor, add_offset, _FillValue and missing_value are numbers by CF's rules");
  }
  return value;
}

Packing packing_of(hid_t dataset, at::ScalarType type, const std::string& where) {
  return checked_packing({.scale = number_attribute(dataset, "scale_factor", where),
                          .offset = number_attribute(dataset, "add_offset", where),
                          .fill = number_attribute(dataset, "_FillValue", where),
                          .missing = number_attribute(dataset, "missing_value", where)},
                         type, where);
}

}  // namespace

std::vector<FieldVariable> hdf5_field_variables(const std::string& path) {
  existing_file_bytes(path);  // throws the error of a file that is not there
  const Hdf5CrashGuard guard(path);
  const Hid file = hdf5_open_file(path);
  std::vector<std::string> names;
  hsize_t index = 0;
  hdf5_check(H5Literate(file.get(), H5_INDEX_NAME, H5_ITER_INC, &index, &note_root_name, &names), ErrorClass::kBadData,
             str("list what is in ", path));
  std::vector<FieldVariable> variables;
  for (const std::string& name : names) {
    if (auto variable = variable_of(file.get(), name)) {
      variables.push_back(std::move(*variable));
    }
  }
  H5Eclear2(H5E_DEFAULT);
  return variables;
}

ArrayLayout inspect_hdf5_variable(const std::string& path, const FieldVariable& variable, bool is_whole) {
  ArrayLayout layout =
      is_whole ? inspect_dataset(path, variable.name, "units") : outline_dataset(path, variable.name, "units");
  const std::string where = str(path, ": dataset '", variable.name, "'");
  const Hdf5CrashGuard guard(path);
  const Hid file = hdf5_open_file(path);
  const Hid dataset = hdf5_open_dataset(file.get(), path, variable.name);
  layout.dims = variable.dims;
  layout.packing = packing_of(dataset.get(), layout.type, where);
  layout.times = hdf5_time_axis(dataset.get(), where);
  const auto place = [&](DimKind kind) {
    return static_cast<size_t>(std::find(layout.dims.begin(), layout.dims.end(), kind) - layout.dims.begin());
  };
  layout.grid = hdf5_grid(file.get(), dataset.get(), path, {place(DimKind::kLatitude), place(DimKind::kLongitude)});
  return layout;
}

StoredTimes hdf5_times(const std::string& path, const std::string& dataset, size_t dim) {
  const Hdf5CrashGuard guard(path);
  const Hid file = hdf5_open_file(path);
  return hdf5_scale_values(hdf5_open_dataset(file.get(), path, dataset).get(), dim);
}

}  // namespace vit_hybrid::data
