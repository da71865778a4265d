// Attributes: scalars of the native types, lists of numbers, and texts of fixed length.
#include "data/hdf5/hdf5_attributes.h"

#include <algorithm>
#include <variant>

#include "data/hdf5/hdf5_open.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

// HDF5 keeps an attribute in a message of at most 64 KiB, its name and type included.
constexpr size_t kPartBytes = 60000;
constexpr size_t kPartNumbers = kPartBytes / sizeof(double);

std::string part_name(const std::string& name, size_t part) {
  return part == 0 ? name : str(name, ".", part);
}

// `space` is that of the value: H5S_SCALAR, or a list.
void add_attribute(hid_t object, const std::string& name, hid_t type, const Hid& space, const void* value,
                   const std::string& path) {
  const std::string what = str("write the attribute '", name, "' of ", path);
  const Hid attribute = hdf5_own(H5Acreate2(object, name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                                 &H5Aclose, ErrorClass::kCannotCreate, what);
  hdf5_check(H5Awrite(attribute.get(), type, value), ErrorClass::kIo, what);
}

Hid scalar() {
  return {H5Screate(H5S_SCALAR), &H5Sclose};
}

void add_text_attribute(hid_t object, const std::string& name, const std::string& value, const std::string& path) {
  const Hid type(H5Tcopy(H5T_C_S1), &H5Tclose);
  H5Tset_size(type.get(), std::max<size_t>(value.size(), 1));
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  add_attribute(object, name, type.get(), scalar(), value.empty() ? "\0" : value.data(), path);
}

void add_text(hid_t object, const std::string& name, const std::string& value, const std::string& path) {
  size_t part = 0;
  do {
    add_text_attribute(object, part_name(name, part), value.substr(part * kPartBytes, kPartBytes), path);
  } while (++part * kPartBytes < value.size());
}

void add_numbers(hid_t object, const std::string& name, const std::vector<double>& values, const std::string& path) {
  const double none = 0.0;  // a place to read nothing from
  size_t begin = 0;
  do {
    const hsize_t count = std::min(values.size() - begin, kPartNumbers);
    add_attribute(object, part_name(name, begin / kPartNumbers), H5T_NATIVE_DOUBLE,
                  Hid(H5Screate_simple(1, &count, nullptr), &H5Sclose), values.empty() ? &none : &values[begin], path);
    begin += kPartNumbers;
  } while (begin < values.size());
}

// Nothing where it is not there, or no list of numbers of such a part's length.
std::optional<std::vector<double>> read_numbers(hid_t object, const std::string& name) {
  if (H5Aexists(object, name.c_str()) <= 0) {
    return std::nullopt;
  }
  const Hid attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), &H5Aclose);
  const Hid type(H5Aget_type(attribute.get()), &H5Tclose);
  const Hid space(H5Aget_space(attribute.get()), &H5Sclose);
  const std::vector<int64_t> shape = hdf5_shape(space.get());
  if (H5Tget_class(type.get()) != H5T_FLOAT || shape.size() != 1 ||
      shape.front() > static_cast<int64_t>(kPartNumbers)) {
    return std::nullopt;
  }
  std::vector<double> values(static_cast<size_t>(shape.front()));
  if (!values.empty() && H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, values.data()) < 0) {
    return std::nullopt;
  }
  return values;
}

}  // namespace

void hdf5_add_attributes(hid_t object, const Hdf5Attributes& attributes, const std::string& path) {
  for (const auto& [name, value] : attributes) {
    if (const auto* text = std::get_if<std::string>(&value)) {
      add_text(object, name, *text, path);
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      add_attribute(object, name, H5T_NATIVE_INT64, scalar(), integer, path);
    } else if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
      add_numbers(object, name, *numbers, path);
    } else {
      add_attribute(object, name, H5T_NATIVE_DOUBLE, scalar(), &std::get<double>(value), path);
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

std::optional<std::vector<double>> hdf5_joined_numbers(hid_t object, const std::string& name) {
  auto values = read_numbers(object, name);
  for (size_t part = 1; values && values->size() == part * kPartNumbers; ++part) {
    const auto more = read_numbers(object, part_name(name, part));
    if (!more) {
      break;
    }
    values->insert(values->end(), more->begin(), more->end());
  }
  return values;
}

void hdf5_replace_text(hid_t object, const std::string& name, const std::string& value, const std::string& path) {
  const std::string what = str("write the attribute '", name, "' of ", path);
  const Hid attribute = hdf5_own(H5Aopen(object, name.c_str(), H5P_DEFAULT), &H5Aclose, ErrorClass::kIo, what);
  const Hid type(H5Aget_type(attribute.get()), &H5Tclose);
  VH_ASSERT(H5Tget_size(type.get()) == value.size(), str("text of ", value.size(), " bytes for '", name, "'"));
  hdf5_check(H5Awrite(attribute.get(), type.get(), value.data()), ErrorClass::kIo, what);
}

}  // namespace vit_hybrid::data
