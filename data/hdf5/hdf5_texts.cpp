// Texts of HDF5 attributes and datasets: lengths by a conversion of HDF5's, then one read of all.
#include "data/hdf5/hdf5_texts.h"

#include <algorithm>
#include <cstring>

#include "data/hdf5/hdf5_open.h"
#include "src/base/quantity_text.h"
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

}  // namespace

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

}  // namespace vit_hybrid::data
