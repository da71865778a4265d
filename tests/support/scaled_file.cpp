// Dimension scales by their specification, with plain serial HDF5 calls.
#include "tests/support/scaled_file.h"

#include <hdf5.h>

#include "src/base/text.h"
#include "tests/support/checked_id.h"

namespace vit_hybrid::testing {

namespace {

struct ScaleUse {
  hobj_ref_t dataset;
  int dim;
};

void add_text(hid_t object, const char* name, const std::string& value) {
  const hid_t type = checked_id(H5Tcopy(H5T_C_S1));
  H5Tset_size(type, value.size() + 1);
  const hid_t space = checked_id(H5Screate(H5S_SCALAR));
  const hid_t attribute = checked_id(H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT));
  checked_id(H5Awrite(attribute, type, value.c_str()));
  H5Aclose(attribute);
  H5Sclose(space);
  H5Tclose(type);
}

hid_t use_type() {
  const hid_t type = checked_id(H5Tcreate(H5T_COMPOUND, sizeof(ScaleUse)));
  H5Tinsert(type, "dataset", HOFFSET(ScaleUse, dataset), H5T_STD_REF_OBJ);
  H5Tinsert(type, "dimension", HOFFSET(ScaleUse, dim), H5T_NATIVE_INT);
  return type;
}

// With values, or texts; else the values are 0, 0.5, 1, ...
void make_scale(hid_t file, const char* name, hsize_t size, const std::vector<std::string>& texts,
                std::vector<double> values = {}, const char* units = "") {
  const hid_t space = checked_id(H5Screate_simple(1, &size, nullptr));
  hid_t type = checked_id(H5Tcopy(H5T_NATIVE_DOUBLE));
  if (!texts.empty()) {
    H5Tclose(type);
    type = checked_id(H5Tcopy(H5T_C_S1));
    H5Tset_size(type, H5T_VARIABLE);
  }
  const hid_t creation = checked_id(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_obj_track_times(creation, false);  // a copy would have the time of its making
  if (!texts.empty()) {                     // as netCDF-4 does
    const char* fill = "none";
    checked_id(H5Pset_fill_value(creation, type, &fill));
  }
  const hid_t scale = checked_id(H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT));
  H5Pclose(creation);
  if (texts.empty()) {
    for (hsize_t i = values.size(); i < size; ++i) {
      values.push_back(0.5 * static_cast<double>(i));
    }
    checked_id(H5Dwrite(scale, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
  } else {
    std::vector<const char*> pointers;
    for (const std::string& text : texts) {
      pointers.push_back(text.c_str());
    }
    checked_id(H5Dwrite(scale, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, pointers.data()));
  }
  add_text(scale, "CLASS", "DIMENSION_SCALE");
  add_text(scale, "NAME", name);
  add_text(scale, "long_name", str("values of ", name));
  if (*units != '\0') {
    add_text(scale, "units", units);
  }
  H5Dclose(scale);
  H5Tclose(type);
  H5Sclose(space);
}

void attach(hid_t file, hid_t fields, const std::vector<const char*>& scales) {
  std::vector<hobj_ref_t> references(scales.size());
  std::vector<hvl_t> lists;
  for (size_t d = 0; d < scales.size(); ++d) {
    checked_id(H5Rcreate(&references[d], file, scales[d], H5R_OBJECT, -1));
    lists.push_back({1, &references[d]});
    ScaleUse use{0, static_cast<int>(d)};
    checked_id(H5Rcreate(&use.dataset, file, "fields", H5R_OBJECT, -1));
    const hsize_t one = 1;
    const hid_t space = checked_id(H5Screate_simple(1, &one, nullptr));
    const hid_t type = use_type();
    const hid_t scale = checked_id(H5Dopen2(file, scales[d], H5P_DEFAULT));
    const hid_t attribute = checked_id(H5Acreate2(scale, "REFERENCE_LIST", type, space, H5P_DEFAULT, H5P_DEFAULT));
    checked_id(H5Awrite(attribute, type, &use));
    H5Aclose(attribute);
    H5Dclose(scale);
    H5Tclose(type);
    H5Sclose(space);
  }
  const hsize_t count = scales.size();
  const hid_t space = checked_id(H5Screate_simple(1, &count, nullptr));
  const hid_t type = checked_id(H5Tvlen_create(H5T_STD_REF_OBJ));
  const hid_t attribute = checked_id(H5Acreate2(fields, "DIMENSION_LIST", type, space, H5P_DEFAULT, H5P_DEFAULT));
  checked_id(H5Awrite(attribute, type, lists.data()));
  H5Aclose(attribute);
  H5Tclose(type);
  H5Sclose(space);
}

void add_labels(hid_t dataset, const std::vector<const char*>& labels) {
  const hsize_t count = labels.size();
  const hid_t space = checked_id(H5Screate_simple(1, &count, nullptr));
  const hid_t type = checked_id(H5Tcopy(H5T_C_S1));
  H5Tset_size(type, H5T_VARIABLE);
  const hid_t attribute = checked_id(H5Acreate2(dataset, "DIMENSION_LABELS", type, space, H5P_DEFAULT, H5P_DEFAULT));
  checked_id(H5Awrite(attribute, type, labels.data()));
  H5Aclose(attribute);
  H5Tclose(type);
  H5Sclose(space);
}

hid_t make_fields(hid_t file, const at::Tensor& values) {
  const auto sizes = values.sizes();
  const std::vector<hsize_t> extents(sizes.begin(), sizes.end());
  std::vector<hsize_t> chunk = extents;
  chunk.front() = 2;
  const hid_t space = checked_id(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr));
  const hid_t creation = checked_id(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_obj_track_times(creation, false);
  H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data());
  H5Pset_deflate(creation, 1);
  const hid_t fields =
      checked_id(H5Dcreate2(file, "fields", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, creation, H5P_DEFAULT));
  checked_id(H5Dwrite(fields, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.contiguous().const_data_ptr()));
  H5Pclose(creation);
  H5Sclose(space);
  return fields;
}

void add_others(hid_t file) {
  const hid_t group = checked_id(H5Gcreate2(file, "grid", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  add_text(group, "projection", "plain");
  make_scale(group, "levels", 3, {});
  H5Gclose(group);
  checked_id(H5Lcreate_soft("/fields", file, "state", H5P_DEFAULT, H5P_DEFAULT));
  const hid_t nothing = checked_id(H5Screate(H5S_NULL));
  const hid_t attribute = checked_id(H5Acreate2(file, "nothing", H5T_NATIVE_INT, nothing, H5P_DEFAULT, H5P_DEFAULT));
  H5Aclose(attribute);
  H5Sclose(nothing);
}

}  // namespace

void write_scaled_file(const std::string& path, const at::Tensor& fields, const std::vector<std::string>& channels,
                       const std::vector<double>& times, const GridScales& grid, const std::string& time_units) {
  const hid_t file = checked_id(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  const auto extent = [&](int64_t dim) { return static_cast<hsize_t>(fields.size(dim)); };
  make_scale(file, "time", extent(0), {}, times);
  if (!time_units.empty()) {
    const hid_t scale = checked_id(H5Dopen2(file, "time", H5P_DEFAULT));
    add_text(scale, "units", time_units);
    H5Dclose(scale);
  }
  make_scale(file, "channel", extent(1), channels);
  make_scale(file, grid.rows, extent(2), {}, {}, grid.row_units);
  make_scale(file, grid.columns, extent(3), {}, {}, grid.column_units);
  const hid_t dataset = make_fields(file, fields);
  add_text(dataset, "units", "m/s,m/s");
  add_text(dataset, "long_name", "a state");
  add_labels(dataset, {"Time", "Channel name", "Latitude", "Longitude"});
  attach(file, dataset, {"time", "channel", grid.rows, grid.columns});
  H5Dclose(dataset);
  add_others(file);
  H5Fclose(file);
}

std::string first_user_of_scale(const std::string& path, const std::string& scale) {
  const hid_t file = checked_id(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
  const hid_t dataset = checked_id(H5Dopen2(file, scale.c_str(), H5P_DEFAULT));
  const hid_t attribute = checked_id(H5Aopen(dataset, "REFERENCE_LIST", H5P_DEFAULT));
  const hid_t type = use_type();
  ScaleUse use{};
  checked_id(H5Aread(attribute, type, &use));
  const hid_t user = checked_id(H5Rdereference2(file, H5P_DEFAULT, H5R_OBJECT, &use.dataset));
  char name[64] = {};
  H5Iget_name(user, name, sizeof name);
  H5Oclose(user);
  H5Tclose(type);
  H5Aclose(attribute);
  H5Dclose(dataset);
  H5Fclose(file);
  return name;
}

}  // namespace vit_hybrid::testing
