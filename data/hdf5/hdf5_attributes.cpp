// Texts by a conversion of HDF5's in one read of all, numbers, and copies of any attribute.
#include "data/hdf5/hdf5_attributes.h"

#include <algorithm>
#include <cstring>
#include <variant>

#include "data/hdf5/hdf5_open.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr int64_t kMostTextBytes = int64_t{1} << 24;

bool is_attribute(hid_t object) {
  return H5Iget_type(object) == H5I_ATTR;
}

Hid type_of(hid_t object) {
  return {is_attribute(object) ? H5Aget_type(object) : H5Dget_type(object), &H5Tclose};
}

Hid space_of(hid_t object) {
  return {is_attribute(object) ? H5Aget_space(object) : H5Dget_space(object), &H5Sclose};
}

herr_t read_all(hid_t object, hid_t type, void* values) {
  return is_attribute(object) ? H5Aread(object, type, values)
                              : H5Dread(object, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
}

bool has_variable_length(hid_t type) {
  return H5Tget_class(type) == H5T_VLEN || H5Tis_variable_str(type) > 0;
}

// HDF5 can tell the length of what lies in datasets only, and by reading all of it. In a file a value of variable
// length is its length in 4 bytes, little-endian, and the place of its elements (HDF5's file format specification), so
// the length alone is a conversion that leaves the rest out. Nothing else is converted to bit fields from such values.
herr_t convert_to_length(hid_t from, hid_t to, H5T_cdata_t* conversion, size_t count, size_t stride, size_t,
                         void* values, void*, hid_t) {
  constexpr size_t kBytes = sizeof(uint32_t);
  if (conversion->command == H5T_CONV_INIT) {
    conversion->need_bkg = H5T_BKG_NO;
    return has_variable_length(from) && H5Tget_size(to) == kBytes ? 0 : -1;
  }
  if (conversion->command == H5T_CONV_CONV) {
    const size_t step = stride != 0 ? stride : H5Tget_size(from);
    auto* bytes = static_cast<unsigned char*>(values);
    for (size_t i = 0; i < count; ++i) {
      uint32_t length = 0;
      for (size_t k = kBytes; k-- > 0;) {
        length = length << 8 | bytes[i * step + k];
      }
      std::memcpy(bytes + i * (stride != 0 ? stride : kBytes), &length, kBytes);
    }
  }
  return 0;
}

void register_conversion() {
  static const bool is_done = [] {
    const Hid text(H5Tcopy(H5T_C_S1), &H5Tclose);
    H5Tset_size(text.get(), H5T_VARIABLE);
    const Hid list(H5Tvlen_create(H5T_NATIVE_INT), &H5Tclose);
    return H5Tregister(H5T_PERS_SOFT, "length of text", text.get(), H5T_NATIVE_B32, &convert_to_length) >= 0 &&
           H5Tregister(H5T_PERS_SOFT, "length of list", list.get(), H5T_NATIVE_B32, &convert_to_length) >= 0;
  }();
  VH_ASSERT(is_done, "HDF5 takes the conversion to lengths");
}

// With what is pointed to; of no more values than `most` bytes have room for. Nothing is taken by what cannot be read.
int64_t bytes_in_memory(hid_t object, hid_t type, int64_t count, int64_t most) {
  const auto item = static_cast<int64_t>(H5Tget_size(type));
  int64_t bytes = 0;
  if (__builtin_mul_overflow(count, item, &bytes) || bytes > most || !has_variable_length(type)) {
    return count > most / item ? most + 1 : bytes;
  }
  register_conversion();
  std::vector<uint32_t> lengths(static_cast<size_t>(count));
  if (read_all(object, H5T_NATIVE_B32, lengths.data()) < 0) {
    return 0;
  }
  const Hid element(H5Tget_class(type) == H5T_VLEN ? H5Tget_super(type) : H5I_INVALID_HID, &H5Tclose);
  const auto of_element = element ? static_cast<int64_t>(H5Tget_size(element.get())) : 1;
  for (const uint32_t length : lengths) {
    bytes += of_element * length;
  }
  return bytes;
}

std::vector<std::string> read_fixed(hid_t object, hid_t type, size_t count) {
  const size_t size = H5Tget_size(type);
  std::vector<char> bytes(count * size, '\0');
  std::vector<std::string> texts;
  if (read_all(object, type, bytes.data()) >= 0) {
    for (size_t at = 0; at < bytes.size(); at += size) {
      texts.emplace_back(bytes.data() + at, strnlen(bytes.data() + at, size));
    }
  }
  return texts;
}

std::vector<std::string> read_variable(hid_t object, hid_t type, size_t count) {
  std::vector<char*> pointers(count, nullptr);
  std::vector<std::string> texts;
  if (read_all(object, type, pointers.data()) >= 0) {
    for (char* pointer : pointers) {
      texts.emplace_back(pointer == nullptr ? "" : pointer);
      H5free_memory(pointer);
    }
  }
  return texts;
}

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

constexpr int64_t kMostBytes = int64_t{1} << 26;

}  // namespace

herr_t hdf5_note_name(hid_t, const char* name, const H5A_info_t*, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

std::vector<std::string> hdf5_texts(hid_t object, const std::string& what) {
  const Hid type = type_of(object);
  const hssize_t count = H5Sget_simple_extent_npoints(space_of(object).get());
  if (H5Tget_class(type.get()) != H5T_STRING || count <= 0) {
    return {};
  }
  hdf5_require_few_bytes(object, kMostTextBytes, what);
  return H5Tis_variable_str(type.get()) > 0 ? read_variable(object, type.get(), static_cast<size_t>(count))
                                            : read_fixed(object, type.get(), static_cast<size_t>(count));
}

void hdf5_require_few_bytes(hid_t object, int64_t most, const std::string& what) {
  const Hid type = type_of(object);
  const int64_t count = std::max<int64_t>(H5Sget_simple_extent_npoints(space_of(object).get()), 0);
  if (bytes_in_memory(object, type.get(), count, most) > most) {
    throw Error(ErrorClass::kBadData,
                str(hdf5_file_name(object), ": ", what, " takes more than ", bytes_text(most), " in memory"),
                "no such value is that large: the file is damaged, copy or make it again");
  }
}

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

std::vector<std::string> hdf5_attribute_names(hid_t object, const std::string& doing) {
  std::vector<std::string> names;
  hsize_t next = 0;
  hdf5_check(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, &next, &hdf5_note_name, &names), ErrorClass::kIo, doing);
  return names;
}

void hdf5_copy_attribute(hid_t from, hid_t to, const std::string& name, const std::string& doing,
                         const Hdf5ValueChange& change) {
  const Hid old = hdf5_own(H5Aopen(from, name.c_str(), H5P_DEFAULT), &H5Aclose, ErrorClass::kIo, doing);
  hdf5_require_few_bytes(old.get(), kMostBytes, str("attribute '", name, "'"));
  const Hid stored(H5Aget_type(old.get()), &H5Tclose);
  const Hid type(H5Tcopy(stored.get()), &H5Tclose);  // of the file's own types a transient copy
  const Hid memory = hdf5_own(H5Tget_native_type(type.get(), H5T_DIR_DEFAULT), &H5Tclose, ErrorClass::kIo, doing);
  const Hid space(H5Aget_space(old.get()), &H5Sclose);
  const auto count = static_cast<size_t>(std::max<hssize_t>(H5Sget_simple_extent_npoints(space.get()), 0));
  const size_t size = H5Tget_size(memory.get());
  std::vector<char> values(count * size);
  if (count > 0) {
    hdf5_check(H5Aread(old.get(), memory.get(), values.data()), ErrorClass::kIo, doing);
  }
  for (size_t i = 0; change && i < count; ++i) {
    change(memory.get(), values.data() + i * size);
  }
  const Hid made = hdf5_own(H5Acreate2(to, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), &H5Aclose,
                            ErrorClass::kIo, doing);
  if (count > 0) {
    hdf5_check(H5Awrite(made.get(), memory.get(), values.data()), ErrorClass::kIo, doing);
    H5Dvlen_reclaim(memory.get(), space.get(), H5P_DEFAULT, values.data());
  }
}

}  // namespace vit_hybrid::data
