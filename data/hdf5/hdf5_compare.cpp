// Comparison of values by their types, and of datasets in blocks of rows.
#include "data/hdf5/hdf5_compare.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "data/hdf5/hdf5_copy.h"
#include "data/hdf5/hdf5_scales.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

// The blocks or points of a selection; all of them, as many as there are.
std::vector<hsize_t> selected_by(hid_t region) {
  const size_t rank = hdf5_shape(region).size();
  std::vector<hsize_t> corners;
  if (H5Sget_select_type(region) == H5S_SEL_HYPERSLABS) {
    const hssize_t count = std::max<hssize_t>(H5Sget_select_hyper_nblocks(region), 0);
    corners.resize(2 * rank * static_cast<size_t>(count));
    H5Sget_select_hyper_blocklist(region, 0, static_cast<hsize_t>(count), corners.data());
  } else if (H5Sget_select_type(region) == H5S_SEL_POINTS) {
    const hssize_t count = std::max<hssize_t>(H5Sget_select_elem_npoints(region), 0);
    corners.resize(rank * static_cast<size_t>(count));
    H5Sget_select_elem_pointlist(region, 0, static_cast<hsize_t>(count), corners.data());
  }
  return corners;
}

// The name of what a reference refers to, and the part of it; empty for a reference to nothing.
std::string referred(hid_t holder, hid_t type, const char* value) {
  if (std::all_of(value, value + H5Tget_size(type), [](char byte) { return byte == '\0'; })) {
    return "";
  }
  const bool is_region = H5Tequal(type, H5T_STD_REF_DSETREG) > 0;
  const H5R_type_t kind = is_region ? H5R_DATASET_REGION : H5R_OBJECT;
  const Hid object(H5Rdereference2(holder, H5P_DEFAULT, kind, value), &H5Oclose);
  if (!object) {
    return "?";  // equal to nothing
  }
  std::string text = hdf5_object_name(object.get());
  if (is_region) {
    const Hid region(H5Rget_region(holder, kind, value), &H5Sclose);
    text += str(" ", H5Sget_select_npoints(region.get()), " in ", join(selected_by(region.get())));
  }
  return text;
}

// Of values in memory, of which the references are those of two files.
class ValueComparison {
 public:
  ValueComparison(hid_t from, hid_t to) : from_(from), to_(to) {}

  bool same(hid_t type, const char* a, const char* b) const {
    switch (H5Tget_class(type)) {
      case H5T_REFERENCE: {
        const std::string of_a = referred(from_, type, a);
        return of_a != "?" && of_a == referred(to_, type, b);
      }
      case H5T_STRING:
        return H5Tis_variable_str(type) > 0 ? same_texts(a, b) : same_bytes(type, a, b);
      case H5T_COMPOUND:
        return same_members(type, a, b);
      case H5T_VLEN: {
        const auto* list_a = reinterpret_cast<const hvl_t*>(a);
        const auto* list_b = reinterpret_cast<const hvl_t*>(b);
        return list_a->len == list_b->len &&
               same_all(Hid(H5Tget_super(type), &H5Tclose).get(), list_a->len, static_cast<const char*>(list_a->p),
                        static_cast<const char*>(list_b->p));
      }
      case H5T_ARRAY: {
        const Hid part(H5Tget_super(type), &H5Tclose);
        return same_all(part.get(), H5Tget_size(type) / H5Tget_size(part.get()), a, b);
      }
      default:
        return same_bytes(type, a, b);
    }
  }

  // All of `count` values.
  bool same_all(hid_t type, size_t count, const char* a, const char* b) const {
    const size_t size = H5Tget_size(type);
    if (!hdf5_refers_to_its_file(type) && H5Tdetect_class(type, H5T_COMPOUND) <= 0) {
      return count == 0 || std::memcmp(a, b, count * size) == 0;
    }
    for (size_t i = 0; i < count; ++i) {
      if (!same(type, a + i * size, b + i * size)) {
        return false;
      }
    }
    return true;
  }

 private:
  static bool same_bytes(hid_t type, const char* a, const char* b) { return std::memcmp(a, b, H5Tget_size(type)) == 0; }

  static bool same_texts(const char* a, const char* b) {
    const char* text_a = nullptr;
    const char* text_b = nullptr;
    std::memcpy(&text_a, a, sizeof text_a);
    std::memcpy(&text_b, b, sizeof text_b);
    return text_a == nullptr || text_b == nullptr ? text_a == text_b : std::strcmp(text_a, text_b) == 0;
  }

  // Not the bytes between the members.
  bool same_members(hid_t type, const char* a, const char* b) const {
    for (int i = 0; i < H5Tget_nmembers(type); ++i) {
      const auto member = static_cast<unsigned>(i);
      const Hid part(H5Tget_member_type(type, member), &H5Tclose);
      const size_t offset = H5Tget_member_offset(type, member);
      if (!same(part.get(), a + offset, b + offset)) {
        return false;
      }
    }
    return true;
  }

  hid_t from_;
  hid_t to_;
};

// Null for no fill value of the file's own.
std::vector<char> fill_value(hid_t dataset, hid_t type, const std::string& where) {
  const Hid creation(H5Dget_create_plist(dataset), &H5Pclose);
  H5D_fill_value_t kind = H5D_FILL_VALUE_UNDEFINED;
  std::vector<char> value;
  if (!creation || H5Pfill_value_defined(creation.get(), &kind) < 0) {
    hdf5_fail_comparison(where, "its creation properties: " + hdf5_reason());
  }
  if (kind == H5D_FILL_VALUE_USER_DEFINED) {
    value.resize(H5Tget_size(type));
    if (H5Pget_fill_value(creation.get(), type, value.data()) < 0) {
      hdf5_fail_comparison(where, "its fill value: " + hdf5_reason());
    }
  }
  return value;
}

void free_value(hid_t type, std::vector<char>& value) {
  if (!value.empty() && hdf5_refers_to_its_file(type)) {
    const Hid one(H5Screate(H5S_SCALAR), &H5Sclose);
    H5Dvlen_reclaim(type, one.get(), H5P_DEFAULT, value.data());
  }
}

bool has_all_filters(hid_t dataset) {
  const Hid creation(H5Dget_create_plist(dataset), &H5Pclose);
  for (int i = 0; i < H5Pget_nfilters(creation.get()); ++i) {
    unsigned flags = 0;
    size_t count = 0;
    const auto filter =
        H5Pget_filter2(creation.get(), static_cast<unsigned>(i), &flags, &count, nullptr, 0, nullptr, nullptr);
    if (H5Zfilter_avail(filter) <= 0) {
      H5Eclear2(H5E_DEFAULT);
      return false;
    }
  }
  return true;
}

#if H5_VERSION_GE(1, 10, 5)

std::vector<char> stored_chunk(hid_t dataset, const std::vector<hsize_t>& corner, hsize_t bytes) {
  std::vector<char> chunk(bytes);
  uint32_t mask = 0;
  if (H5Dread_chunk(dataset, H5P_DEFAULT, corner.data(), &mask, chunk.data()) < 0) {
    H5Eclear2(H5E_DEFAULT);
    chunk.clear();
  }
  return chunk;
}

// 0 for other storage.
hsize_t num_stored_chunks(hid_t dataset) {
  const Hid creation(H5Dget_create_plist(dataset), &H5Pclose);
  const Hid space(H5Dget_space(dataset), &H5Sclose);
  hsize_t count = 0;
  if (H5Pget_layout(creation.get()) == H5D_CHUNKED) {
    H5Dget_num_chunks(dataset, space.get(), &count);
  }
  return count;
}

bool has_same_chunks(hid_t from, hid_t to) {
  const Hid space(H5Dget_space(from), &H5Sclose);
  std::vector<hsize_t> corner(hdf5_shape(space.get()).size());
  for (hsize_t i = 0; i < num_stored_chunks(from); ++i) {
    unsigned mask = 0;
    hsize_t bytes = 0;
    hsize_t bytes_to = 0;
    if (H5Dget_chunk_info(from, space.get(), i, corner.data(), &mask, nullptr, &bytes) < 0 ||
        H5Dget_chunk_storage_size(to, corner.data(), &bytes_to) < 0 || bytes != bytes_to ||
        stored_chunk(from, corner, bytes) != stored_chunk(to, corner, bytes)) {
      return false;
    }
  }
  return true;
}

#else  // HDF5 tells of no chunk

hsize_t num_stored_chunks(hid_t) {
  return 0;
}

bool has_same_chunks(hid_t from, hid_t to) {
  return H5Dget_storage_size(from) == H5Dget_storage_size(to);
}

#endif

}  // namespace

void hdf5_fail_comparison(const std::string& where, const std::string& what) {
  H5Eclear2(H5E_DEFAULT);
  throw Error(ErrorClass::kIo, str(where, " is not read as it was written: ", what),
              "see the messages of the storage; where there are none, leave the object out of a copy of the input");
}

void hdf5_require_same_dataset(hid_t from, hid_t to, const std::string& where) {
  const Hid type(H5Dget_type(from), &H5Tclose);
  const Hid type_to(H5Dget_type(to), &H5Tclose);
  const Hid space(H5Dget_space(from), &H5Sclose);
  const Hid space_to(H5Dget_space(to), &H5Sclose);
  if (H5Tequal(type.get(), type_to.get()) <= 0) {
    hdf5_fail_comparison(where, "its type");
  }
  if (H5Sget_simple_extent_type(space.get()) != H5Sget_simple_extent_type(space_to.get()) ||
      hdf5_shape(space.get()) != hdf5_shape(space_to.get())) {
    hdf5_fail_comparison(where, "its shape");
  }
  const ValueComparison values(from, to);
  std::vector<char> fill = fill_value(from, type.get(), where);
  std::vector<char> fill_to = fill_value(to, type_to.get(), where);
  const bool same_fill =
      fill.size() == fill_to.size() && (fill.empty() || values.same(type.get(), fill.data(), fill_to.data()));
  free_value(type.get(), fill);
  free_value(type_to.get(), fill_to);
  if (!same_fill) {
    hdf5_fail_comparison(where, "its fill value");
  }
  // What is not stored is not read, and has the fill value in both.
  if (num_stored_chunks(from) != num_stored_chunks(to) || hdf5_is_never_written(from) != hdf5_is_never_written(to)) {
    hdf5_fail_comparison(where, "the number of its chunks");
  }
  if (!has_all_filters(from)) {
    return has_same_chunks(from, to) ? void() : hdf5_fail_comparison(where, "its chunks");
  }
  const std::string doing = "read back " + where;
  hdf5_for_each_block(from, type.get(), doing, [&](hid_t memory, hid_t selected, char* a, size_t count) {
    std::vector<char> b(count * H5Tget_size(type.get()));
    hdf5_check(H5Dread(to, type.get(), memory, selected, H5P_DEFAULT, b.data()), ErrorClass::kIo, doing);
    const bool same = values.same_all(type.get(), count, a, b.data());
    if (hdf5_refers_to_its_file(type.get())) {
      H5Dvlen_reclaim(type.get(), memory, H5P_DEFAULT, b.data());
    }
    if (!same) {
      hdf5_fail_comparison(where, "its values");
    }
  });
}

void hdf5_require_same_attribute(hid_t from, hid_t to, const std::string& name, const std::string& where) {
  const std::string what = str("its attribute '", name, "'");
  const Hid a(H5Aopen(from, name.c_str(), H5P_DEFAULT), &H5Aclose);
  const Hid b(H5Aopen(to, name.c_str(), H5P_DEFAULT), &H5Aclose);
  if (!a || !b) {
    hdf5_fail_comparison(where, str(what, ": ", hdf5_reason()));
  }
  const Hid type(H5Aget_type(a.get()), &H5Tclose);
  const Hid type_to(H5Aget_type(b.get()), &H5Tclose);
  const Hid space(H5Aget_space(a.get()), &H5Sclose);
  const Hid space_to(H5Aget_space(b.get()), &H5Sclose);
  const auto count = static_cast<size_t>(std::max<hssize_t>(H5Sget_simple_extent_npoints(space.get()), 0));
  if (H5Tequal(type.get(), type_to.get()) <= 0 || hdf5_shape(space.get()) != hdf5_shape(space_to.get()) ||
      H5Sget_simple_extent_type(space.get()) != H5Sget_simple_extent_type(space_to.get())) {
    hdf5_fail_comparison(where, what);
  }
  if (count == 0) {
    return;
  }
  std::vector<char> values(count * H5Tget_size(type.get()));
  std::vector<char> values_to(values.size());
  hdf5_check(H5Aread(a.get(), type.get(), values.data()), ErrorClass::kIo, str("read ", what, " of ", where));
  if (H5Aread(b.get(), type.get(), values_to.data()) < 0) {
    hdf5_fail_comparison(where, str(what, ": ", hdf5_reason()));
  }
  const bool same = ValueComparison(from, to).same_all(type.get(), count, values.data(), values_to.data());
  if (hdf5_refers_to_its_file(type.get())) {
    H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, values.data());
    H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, values_to.data());
  }
  if (!same) {
    hdf5_fail_comparison(where, what);
  }
}

}  // namespace vit_hybrid::data
