// Attributes: scalars of the native types, and texts of fixed length.
#include "data/hdf5_attributes.h"

#include <algorithm>
#include <variant>

#include "data/hdf5_open.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

// HDF5 keeps an attribute in a message of at most 64 KiB, its name and type included.
constexpr size_t kPartBytes = 60000;

std::string part_name(const std::string& name, size_t part) {
  return part == 0 ? name : str(name, ".", part);
}

void add_attribute(hid_t object, const std::string& name, hid_t type, const void* value, const std::string& path) {
  const std::string what = str("write the attribute '", name, "' of ", path);
  const Hid space(H5Screate(H5S_SCALAR), &H5Sclose);
  const Hid attribute = hdf5_own(H5Acreate2(object, name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                                 &H5Aclose, ErrorClass::kCannotCreate, what);
  hdf5_check(H5Awrite(attribute.get(), type, value), ErrorClass::kIo, what);
}

void add_text_attribute(hid_t object, const std::string& name, const std::string& value, const std::string& path) {
  const Hid type(H5Tcopy(H5T_C_S1), &H5Tclose);
  H5Tset_size(type.get(), std::max<size_t>(value.size(), 1));
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  add_attribute(object, name, type.get(), value.empty() ? "\0" : value.data(), path);
}

void add_text(hid_t object, const std::string& name, const std::string& value, const std::string& path) {
  size_t part = 0;
  do {
    add_text_attribute(object, part_name(name, part), value.substr(part * kPartBytes, kPartBytes), path);
  } while (++part * kPartBytes < value.size());
}

}  // namespace

void hdf5_add_attributes(hid_t object, const Hdf5Attributes& attributes, const std::string& path) {
  for (const auto& [name, value] : attributes) {
    if (const auto* text = std::get_if<std::string>(&value)) {
      add_text(object, name, *text, path);
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      add_attribute(object, name, H5T_NATIVE_INT64, integer, path);
    } else {
      add_attribute(object, name, H5T_NATIVE_DOUBLE, &std::get<double>(value), path);
    }
  }
}

std::string hdf5_joined_text(hid_t object, const std::string& name) {
  std::string text = hdf5_text_attribute(object, name);
  for (size_t part = 1; text.size() == part * kPartBytes; ++part) {
    text += hdf5_text_attribute(object, part_name(name, part));
  }
  return text;
}

void hdf5_replace_text(hid_t object, const std::string& name, const std::string& value, const std::string& path) {
  const std::string what = str("write the attribute '", name, "' of ", path);
  const Hid attribute = hdf5_own(H5Aopen(object, name.c_str(), H5P_DEFAULT), &H5Aclose, ErrorClass::kIo, what);
  const Hid type(H5Aget_type(attribute.get()), &H5Tclose);
  VH_ASSERT(H5Tget_size(type.get()) == value.size(), str("text of ", value.size(), " bytes for '", name, "'"));
  hdf5_check(H5Awrite(attribute.get(), type.get(), value.data()), ErrorClass::kIo, what);
}

}  // namespace vit_hybrid::data
