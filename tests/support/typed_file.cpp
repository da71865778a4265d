// Datasets of many types, with plain serial HDF5 calls.
#include "tests/support/typed_file.h"

#include <hdf5.h>

#include <array>

#include "tests/support/checked_id.h"

namespace vit_hybrid::testing {

namespace {

struct Mixed {
  double number;
  const char* text;
  hvl_t list;
};

hid_t text_type() {
  const hid_t type = checked_id(H5Tcopy(H5T_C_S1));
  H5Tset_size(type, H5T_VARIABLE);
  return type;
}

hid_t line(hsize_t size) {
  return checked_id(H5Screate_simple(1, &size, nullptr));
}

void add_dataset(hid_t file, const char* name, hid_t type, hsize_t size, const void* values,
                 hid_t creation = H5P_DEFAULT) {
  const hid_t space = line(size);
  const hid_t dataset = checked_id(H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT));
  checked_id(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
  H5Dclose(dataset);
  H5Sclose(space);
}

// Values [first, first + count) of `size`.
void add_texts(hid_t file, const char* name, hsize_t size, hsize_t first, const std::vector<const char*>& texts,
               hsize_t chunk) {
  const hid_t type = text_type();
  const hid_t creation = checked_id(H5Pcreate(H5P_DATASET_CREATE));
  const char* fill = "nothing";
  checked_id(H5Pset_fill_value(creation, type, &fill));
  if (chunk > 0) {
    H5Pset_chunk(creation, 1, &chunk);
    H5Pset_deflate(creation, 1);
  }
  const hid_t space = line(size);
  const hid_t dataset = checked_id(H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT));
  const hsize_t count = texts.size();
  const hid_t memory = line(count);
  H5Sselect_hyperslab(space, H5S_SELECT_SET, &first, nullptr, &count, nullptr);
  checked_id(H5Dwrite(dataset, type, memory, space, H5P_DEFAULT, texts.data()));
  H5Sclose(memory);
  H5Dclose(dataset);
  H5Sclose(space);
  H5Pclose(creation);
  H5Tclose(type);
}

void add_lists(hid_t file) {
  std::array<int, 5> numbers = {1, 2, 3, 4, 5};
  const std::array<hvl_t, 3> lists = {hvl_t{2, numbers.data()}, hvl_t{0, nullptr}, hvl_t{5, numbers.data()}};
  const hid_t type = checked_id(H5Tvlen_create(H5T_NATIVE_INT));
  add_dataset(file, "lists", type, lists.size(), lists.data());
  const hid_t text = text_type();
  const hid_t mixed = checked_id(H5Tcreate(H5T_COMPOUND, sizeof(Mixed)));
  H5Tinsert(mixed, "number", HOFFSET(Mixed, number), H5T_NATIVE_DOUBLE);
  H5Tinsert(mixed, "text", HOFFSET(Mixed, text), text);
  H5Tinsert(mixed, "list", HOFFSET(Mixed, list), type);
  const std::array<Mixed, 2> values = {Mixed{1.5, "one", lists[0]}, Mixed{2.5, "two", lists[2]}};
  add_dataset(file, "mixed", mixed, values.size(), values.data());
  H5Tclose(mixed);
  H5Tclose(text);
  H5Tclose(type);
}

void add_references(hid_t file, const char* target) {
  std::array<hobj_ref_t, 2> references{};
  checked_id(H5Rcreate(references.data(), file, "names", H5R_OBJECT, -1));
  add_dataset(file, "references", H5T_STD_REF_OBJ, references.size(), references.data());
  const hid_t dataset = checked_id(H5Dopen2(file, target, H5P_DEFAULT));
  const hid_t space = checked_id(H5Dget_space(dataset));
  const std::vector<hsize_t> start(static_cast<size_t>(H5Sget_simple_extent_ndims(space)), 0);
  const std::vector<hsize_t> extents(start.size(), 1);
  H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, extents.data(), nullptr);
  hdset_reg_ref_t region{};
  checked_id(H5Rcreate(&region, file, target, H5R_DATASET_REGION, space));
  add_dataset(file, "region", H5T_STD_REF_DSETREG, 1, &region);
  H5Sclose(space);
  H5Dclose(dataset);
}

void add_small_types(hid_t file) {
  const hid_t opaque = checked_id(H5Tcreate(H5T_OPAQUE, 3));
  add_dataset(file, "opaque", opaque, 2, "abcdef");
  H5Tclose(opaque);
  const hid_t kinds = checked_id(H5Tenum_create(H5T_NATIVE_INT));
  const std::array<int, 3> values = {0, 1, 0};
  H5Tenum_insert(kinds, "no", &values[0]);
  H5Tenum_insert(kinds, "yes", &values[1]);
  add_dataset(file, "kinds", kinds, values.size(), values.data());
  H5Tclose(kinds);
  const hid_t named = checked_id(H5Tcopy(H5T_STD_I16BE));
  checked_id(H5Tcommit2(file, "named", named, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  add_dataset(file, "of_named", named, 2, "\0\1\0\2");
  H5Tclose(named);
}

void add_attribute(hid_t file, const char* object, const char* name, hid_t type, hsize_t size, const void* values) {
  const hid_t space = line(size);
  const hid_t opened = checked_id(H5Oopen(file, object, H5P_DEFAULT));
  const hid_t attribute = checked_id(H5Acreate2(opened, name, type, space, H5P_DEFAULT, H5P_DEFAULT));
  checked_id(H5Awrite(attribute, type, values));
  H5Aclose(attribute);
  H5Oclose(opened);
  H5Sclose(space);
}

void add_attributes(hid_t file, const char* object) {
  const hid_t text = text_type();
  const std::array<const char*, 2> texts = {"a", "bc"};
  add_attribute(file, object, "texts", text, texts.size(), texts.data());
  H5Tclose(text);
  hobj_ref_t reference{};
  checked_id(H5Rcreate(&reference, file, "names", H5R_OBJECT, -1));
  add_attribute(file, object, "reference", H5T_STD_REF_OBJ, 1, &reference);
  const hvl_t list{1, &reference};
  const hid_t type = checked_id(H5Tvlen_create(H5T_STD_REF_OBJ));
  add_attribute(file, object, "list", type, 1, &list);
  H5Tclose(type);
}

}  // namespace

void add_typed_datasets(const std::string& path, const std::string& target) {
  const hid_t file = checked_id(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
  add_texts(file, "names", 4, 0, {"one", "", "three"}, 0);
  add_texts(file, "chunked", 7, 2, {"x", "yy"}, 2);
  add_lists(file);
  add_references(file, target.c_str());
  add_small_types(file);
  add_attributes(file, "names");
  add_attributes(file, target.c_str());
  H5Fclose(file);
}

std::vector<std::string> texts_and_fill(const std::string& path, const std::string& dataset) {
  const hid_t file = checked_id(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
  const hid_t opened = checked_id(H5Dopen2(file, dataset.c_str(), H5P_DEFAULT));
  const hid_t space = checked_id(H5Dget_space(opened));
  const hid_t creation = H5Dget_create_plist(opened);
  const hid_t type = text_type();
  std::vector<char*> texts(static_cast<size_t>(H5Sget_simple_extent_npoints(space)), nullptr);
  char* fill = nullptr;
  std::vector<std::string> result;
  const bool are_read = H5Dread(opened, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, texts.data()) >= 0;
  for (char* text : texts) {
    result.emplace_back(are_read && text != nullptr ? text : "(failed)");
    H5free_memory(text);
  }
  const bool has_fill = creation >= 0 && H5Pget_fill_value(creation, type, &fill) >= 0 && fill != nullptr;
  result.emplace_back(has_fill ? fill : "(failed)");
  H5free_memory(fill);
  H5Tclose(type);
  H5Pclose(creation);
  H5Sclose(space);
  H5Dclose(opened);
  H5Fclose(file);
  return result;
}

std::vector<std::string> referred_names(const std::string& path, const std::string& dataset) {
  const hid_t file = checked_id(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
  const hid_t opened = checked_id(H5Dopen2(file, dataset.c_str(), H5P_DEFAULT));
  const hid_t space = checked_id(H5Dget_space(opened));
  std::vector<hobj_ref_t> references(static_cast<size_t>(H5Sget_simple_extent_npoints(space)));
  checked_id(H5Dread(opened, H5T_STD_REF_OBJ, H5S_ALL, H5S_ALL, H5P_DEFAULT, references.data()));
  std::vector<std::string> names;
  for (const hobj_ref_t& reference : references) {
    std::array<char, 64> name{};
    if (reference != 0) {
      const hid_t object = checked_id(H5Rdereference2(file, H5P_DEFAULT, H5R_OBJECT, &reference));
      H5Iget_name(object, name.data(), name.size());
      H5Oclose(object);
    }
    names.emplace_back(name.data());
  }
  H5Sclose(space);
  H5Dclose(opened);
  H5Fclose(file);
  return names;
}

void add_external_dataset(const std::string& path, const std::string& name, const std::string& raw,
                          const std::vector<int64_t>& shape) {
  const std::vector<hsize_t> extents(shape.begin(), shape.end());
  const hid_t file = checked_id(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
  const hid_t space = checked_id(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr));
  const hid_t creation = checked_id(H5Pcreate(H5P_DATASET_CREATE));
  checked_id(H5Pset_external(creation, raw.c_str(), 0, H5F_UNLIMITED));
  H5Dclose(checked_id(H5Dcreate2(file, name.c_str(), H5T_NATIVE_FLOAT, space, H5P_DEFAULT, creation, H5P_DEFAULT)));
  H5Pclose(creation);
  H5Sclose(space);
  H5Fclose(file);
}

void add_foreign_filter(const std::string& path, const std::string& name, const at::Tensor& values, int number,
                        const std::string& filter, FilterResult result) {
  const auto keep = [](unsigned, size_t, const unsigned*, size_t bytes, size_t*, void**) { return bytes; };
  const auto fail = [](unsigned, size_t, const unsigned*, size_t, size_t*, void**) { return size_t{0}; };
  const H5Z_class2_t none = {
      H5Z_CLASS_T_VERS, number,  1,       1,
      filter.c_str(),   nullptr, nullptr, result == FilterResult::kDone ? static_cast<H5Z_func_t>(keep) : fail};
  checked_id(H5Zregister(&none));
  const hid_t file = checked_id(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
  const std::vector<hsize_t> extents(values.sizes().begin(), values.sizes().end());
  const hid_t space = checked_id(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr));
  const hid_t creation = checked_id(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_chunk(creation, static_cast<int>(extents.size()), extents.data());
  checked_id(H5Pset_filter(creation, number, H5Z_FLAG_OPTIONAL, 0, nullptr));
  const hid_t dataset =
      checked_id(H5Dcreate2(file, name.c_str(), H5T_NATIVE_FLOAT, space, H5P_DEFAULT, creation, H5P_DEFAULT));
  checked_id(H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.contiguous().const_data_ptr()));
  H5Dclose(dataset);
  H5Pclose(creation);
  H5Sclose(space);
  H5Fclose(file);
  H5Zunregister(number);
}

}  // namespace vit_hybrid::testing
