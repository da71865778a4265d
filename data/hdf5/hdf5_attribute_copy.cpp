// Reading and writing of attributes as arrays of their types in memory.
#include "data/hdf5/hdf5_attribute_copy.h"

#include <algorithm>

#include "data/hdf5/hdf5_texts.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr int64_t kMostBytes = int64_t{1} << 26;

herr_t note_name(hid_t, const char* name, const H5A_info_t*, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

}  // namespace

std::vector<std::string> hdf5_attribute_names(hid_t object, const std::string& doing) {
  std::vector<std::string> names;
  hsize_t next = 0;
  hdf5_check(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, &next, &note_name, &names), ErrorClass::kIo, doing);
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
