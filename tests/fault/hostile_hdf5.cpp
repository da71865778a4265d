// Writes HDF5 files that are meant to harm their reader, for hostile_inputs.py.
//
//   hostile_hdf5                   lists the kinds: "weather NAME" or "images NAME" a line
//   hostile_hdf5 NAME PATH TEXT    writes the file; TEXT is what its links, names and attributes hold or lead to
//
// `weather` files have the dataset fields (3, 3, 8, 16) and the channels u, v, height, `images` files the datasets
// images (8, 8, 8, 3) and labels (8) of two classes, but for what their kind spoils.
#include <hdf5.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace {

using Shape = std::vector<hsize_t>;

constexpr H5Z_filter_t kUnknownFilter = 32123;

const Shape kFields = {3, 3, 8, 16};
const Shape kImages = {8, 8, 8, 3};
const Shape kLabels = {8};

hsize_t count_of(const Shape& shape) {
  hsize_t count = 1;
  for (const hsize_t extent : shape) {
    count *= extent;
  }
  return count;
}

hid_t space_of(const Shape& shape) {
  return H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
}

hid_t text_type(size_t size = H5T_VARIABLE) {
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, size);
  return type;
}

// An attribute of one value.
void attribute(hid_t object, const char* name, hid_t type, const void* value, hid_t space = H5Screate(H5S_SCALAR)) {
  const hid_t id = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  H5Awrite(id, type, value);
  H5Aclose(id);
}

void text_attribute(hid_t object, const char* name, const std::string& text) {
  attribute(object, name, text_type(std::max<size_t>(text.size(), 1)), text.c_str());
}

// A dataset with the bytes of `values`, or without any where it is null.
hid_t dataset(hid_t file, const char* name, hid_t type, hid_t space, const void* values, hid_t creation = H5P_DEFAULT) {
  const hid_t id = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  if (id >= 0 && values != nullptr) {
    H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
  }
  return id;
}

std::vector<float> wave(hsize_t count) {
  std::vector<float> values(count);
  for (hsize_t i = 0; i < count; ++i) {
    values[i] = std::sin(static_cast<float>(i));
  }
  return values;
}

hid_t chunked(const Shape& chunk) {
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data());
  return creation;
}

void good_fields(hid_t file, hid_t creation = H5P_DEFAULT) {
  dataset(file, "fields", H5T_IEEE_F32LE, space_of(kFields), wave(count_of(kFields)).data(), creation);
}

void good_channels(hid_t file) {
  text_attribute(file, "channels", "u,v,height");
}

// Fields of another shape or type, zeros.
void fields_of(hid_t file, const Shape& shape, hid_t type, hid_t creation = H5P_DEFAULT) {
  const std::vector<char> zeros(std::min<hsize_t>(count_of(shape), 1 << 16) * H5Tget_size(type) + 1);
  dataset(file, "fields", type, space_of(shape), H5Tdetect_class(type, H5T_VLEN) > 0 ? nullptr : zeros.data(),
          creation);
  good_channels(file);
}

// Many rows that take no place: the storage is never allocated.
void sparse_fields(hid_t file, const Shape& shape, const Shape& chunk) {
  dataset(file, "fields", H5T_IEEE_F32LE, space_of(shape), nullptr, chunked(chunk));
  good_channels(file);
}

void spoilt_fields(hid_t file, float value) {
  std::vector<float> values = wave(count_of(kFields));
  values[count_of(kFields) / 2] = value;
  dataset(file, "fields", H5T_IEEE_F32LE, space_of(kFields), values.data());
  good_channels(file);
}

// The storage of the fields lies in another file.
void external_fields(hid_t file, const std::string& target, int num_files = 1) {
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  const hsize_t bytes = count_of(kFields) * sizeof(float) / static_cast<hsize_t>(num_files);
  for (int i = 0; i < num_files; ++i) {
    H5Pset_external(creation, target.c_str(), static_cast<off_t>(i), bytes);
  }
  dataset(file, "fields", H5T_IEEE_F32LE, space_of(kFields), nullptr, creation);
  good_channels(file);
}

// The fields are a view of the dataset `name` of `source`, in `parts` parts.
void virtual_fields(hid_t file, const std::string& source, const char* name, hsize_t parts) {
  Shape all = kFields;
  all[0] = parts;
  Shape part = kFields;
  part[0] = 1;
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  const hid_t space = space_of(all);
  for (hsize_t row = 0; row < parts; ++row) {
    const Shape start = {row, 0, 0, 0};
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, part.data(), nullptr);
    H5Pset_virtual(creation, space, source.c_str(), name, space_of(part));
  }
  H5Sselect_all(space);
  dataset(file, "fields", H5T_IEEE_F32LE, space, nullptr, creation);
  good_channels(file);
}

size_t pass_on(unsigned, size_t, const unsigned*, size_t bytes, size_t*, void**) {
  return bytes;
}

void unknown_filter(hid_t file) {
  const H5Z_class2_t filter = {H5Z_CLASS_T_VERS, kUnknownFilter, 1, 1, "unknown", nullptr, nullptr, &pass_on};
  H5Zregister(&filter);
  const hid_t creation = chunked({1, 3, 8, 16});
  H5Pset_filter(creation, kUnknownFilter, H5Z_FLAG_MANDATORY, 0, nullptr);
  good_fields(file, creation);
  good_channels(file);
}

// Gigabytes of zeros in kilobytes of chunks.
void zip_bomb(hid_t file, hsize_t rows) {
  const Shape shape = {rows, 3, 8, 16};
  const hid_t creation = chunked(shape);
  H5Pset_deflate(creation, 1);
  const std::vector<float> zeros(count_of(shape));
  dataset(file, "fields", H5T_IEEE_F32LE, space_of(shape), zeros.data(), creation);
  good_channels(file);
}

void many_groups(hid_t file, int count, bool is_deep) {
  good_fields(file);
  good_channels(file);
  hid_t group = file;
  for (int i = 0; i < count; ++i) {
    const std::string name = "g" + std::to_string(i);
    const hid_t made = H5Gcreate2(group, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    if (is_deep) {
      group = made;
    } else {
      H5Gclose(made);
    }
  }
}

void many_datasets(hid_t file, int count) {
  good_fields(file);
  good_channels(file);
  for (int i = 0; i < count; ++i) {
    H5Dclose(dataset(file, ("d" + std::to_string(i)).c_str(), H5T_IEEE_F32LE, space_of({2}), nullptr));
  }
}

void many_attributes(hid_t file, int count) {
  good_fields(file);
  good_channels(file);
  for (int i = 0; i < count; ++i) {
    text_attribute(file, ("a" + std::to_string(i)).c_str(), "text");
  }
}

// Groups of which each holds two ways to the next: 2^depth paths.
void doubled_groups(hid_t file, int depth) {
  good_fields(file);
  good_channels(file);
  hid_t group = file;
  for (int i = 0; i < depth; ++i) {
    const hid_t next = H5Gcreate2(group, "a", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_hard(group, "a", group, "b", H5P_DEFAULT, H5P_DEFAULT);
    group = next;
  }
}

void text_array_attribute(hid_t object, const char* name, const std::vector<const char*>& texts) {
  attribute(object, name, text_type(), texts.data(), space_of({texts.size()}));
}

// Dimension scales that lead to the dataset itself.
void looping_scales(hid_t file) {
  good_fields(file);
  good_channels(file);
  const hid_t fields = H5Dopen2(file, "fields", H5P_DEFAULT);
  hobj_ref_t reference = 0;
  H5Rcreate(&reference, file, "fields", H5R_OBJECT, -1);
  hvl_t lists[4];
  for (hvl_t& list : lists) {
    list = {1, &reference};
  }
  attribute(fields, "DIMENSION_LIST", H5Tvlen_create(H5T_STD_REF_OBJ), lists, space_of({4}));
  text_attribute(fields, "CLASS", "DIMENSION_SCALE");
}

void dangling_scales(hid_t file) {
  good_fields(file);
  good_channels(file);
  const hid_t fields = H5Dopen2(file, "fields", H5P_DEFAULT);
  hobj_ref_t reference = 0x7fffffffff;
  hvl_t lists[4];
  for (hvl_t& list : lists) {
    list = {1, &reference};
  }
  attribute(fields, "DIMENSION_LIST", H5Tvlen_create(H5T_STD_REF_OBJ), lists, space_of({4}));
}

hid_t pair_type() {
  const hid_t type = H5Tcreate(H5T_COMPOUND, 8);
  H5Tinsert(type, "a", 0, H5T_IEEE_F32LE);
  H5Tinsert(type, "b", 4, H5T_IEEE_F32LE);
  return type;
}

hid_t odd_float(size_t exponent, size_t fraction) {
  const hid_t type = H5Tcopy(H5T_IEEE_F64LE);
  H5Tset_fields(type, 63, 63 - exponent, exponent, 0, fraction);
  return type;
}

// --- images

void good_labels(hid_t file) {
  const int64_t labels[] = {0, 1, 0, 1, 0, 1, 0, 1};
  text_attribute(dataset(file, "labels", H5T_STD_I64LE, space_of(kLabels), labels), "classes",
                 "plain disc,plain square");
}

void images_of(hid_t file, const Shape& shape, hid_t type = H5T_STD_U8LE) {
  const std::vector<char> zeros(count_of(shape) * H5Tget_size(type) + 1, 1);
  dataset(file, "images", type, space_of(shape), zeros.data());
}

void labels_of(hid_t file, hid_t type, const void* values, const Shape& shape = kLabels,
               const std::string& classes = "plain disc,plain square") {
  images_of(file, kImages);
  text_attribute(dataset(file, "labels", type, space_of(shape), values), "classes", classes);
}

void long_labels(hid_t file, int64_t last) {
  const std::vector<int64_t> labels = {0, 1, 0, 1, 0, 1, 0, last};
  labels_of(file, H5T_STD_I64LE, labels.data());
}

void labels_of_classes(hid_t file, const std::string& classes) {
  const std::vector<int64_t> labels = {0, 1, 0, 1, 0, 1, 0, 1};
  labels_of(file, H5T_STD_I64LE, labels.data(), kLabels, classes);
}

std::string repeated(const std::string& text, int count, const char* separator) {
  std::string all = text;
  for (int i = 1; i < count; ++i) {
    all += separator + text;
  }
  return all;
}

using Write = std::function<void(hid_t file, const std::string& text)>;
using Kinds = std::vector<std::pair<std::string, Write>>;

Kinds shape_and_type_kinds() {
  constexpr hsize_t kMany = hsize_t{1} << 40;
  return {
      {"no_rows",
       [](hid_t f, auto&) {
         fields_of(f, {0, 3, 8, 16}, H5T_IEEE_F32LE);
       }},
      {"no_channels",
       [](hid_t f, auto&) {
         fields_of(f, {3, 0, 8, 16}, H5T_IEEE_F32LE);
       }},
      {"one_row",
       [](hid_t f, auto&) {
         fields_of(f, {1, 3, 8, 16}, H5T_IEEE_F32LE);
       }},
      {"three_dims",
       [](hid_t f, auto&) {
         fields_of(f, {3, 3, 8}, H5T_IEEE_F32LE);
       }},
      {"many_dims", [](hid_t f, auto&) { fields_of(f, Shape(32, 1), H5T_IEEE_F32LE); }},
      {"scalar", [](hid_t f, auto&) { dataset(f, "fields", H5T_IEEE_F32LE, H5Screate(H5S_SCALAR), nullptr); }},
      {"null_space", [](hid_t f, auto&) { dataset(f, "fields", H5T_IEEE_F32LE, H5Screate(H5S_NULL), nullptr); }},
      {"sparse_rows",
       [](hid_t f, auto&) {
         sparse_fields(f, {kMany, 3, 8, 16}, {1, 3, 8, 16});
       }},
      {"sparse_overflow",
       [](hid_t f, auto&) {
         sparse_fields(f, {kMany, kMany, 8, 16}, {1, 3, 8, 16});
       }},
      {"sparse_channels",
       [](hid_t f, auto&) {
         sparse_fields(f, {3, kMany, 8, 16}, {1, 3, 8, 16});
       }},
      {"sparse_chunks",
       [](hid_t f, auto&) {
         sparse_fields(f, {kMany, 3, 8, 16}, {1, 1, 1, 1});
       }},
      {"huge_chunk",
       [](hid_t f, auto&) {
         sparse_fields(f, {900000, 3, 8, 16}, {900000, 3, 8, 16});
       }},
      {"texts", [](hid_t f, auto&) { fields_of(f, kFields, text_type(4)); }},
      {"long_texts", [](hid_t f, auto&) { dataset(f, "fields", text_type(), space_of(kFields), nullptr); }},
      {"pairs", [](hid_t f, auto&) { fields_of(f, kFields, pair_type()); }},
      {"lists", [](hid_t f, auto&) { fields_of(f, kFields, H5Tvlen_create(H5T_IEEE_F32LE)); }},
      {"references", [](hid_t f, auto&) { fields_of(f, kFields, H5T_STD_REF_OBJ); }},
      {"opaque", [](hid_t f, auto&) { fields_of(f, kFields, H5Tcreate(H5T_OPAQUE, 4)); }},
      {"bits", [](hid_t f, auto&) { fields_of(f, kFields, H5T_STD_B32LE); }},
      {"whole_numbers", [](hid_t f, auto&) { fields_of(f, kFields, H5T_STD_U64LE); }},
      {"odd_float", [](hid_t f, auto&) { fields_of(f, kFields, odd_float(15, 40)); }},
      {"tiny_float", [](hid_t f, auto&) { fields_of(f, kFields, odd_float(1, 1)); }},
      {"nan", [](hid_t f, auto&) { spoilt_fields(f, std::numeric_limits<float>::quiet_NaN()); }},
      {"infinity", [](hid_t f, auto&) { spoilt_fields(f, std::numeric_limits<float>::infinity()); }},
      {"largest", [](hid_t f, auto&) { spoilt_fields(f, std::numeric_limits<float>::max()); }},
  };
}

Kinds storage_kinds() {
  return {
      {"external", [](hid_t f, const auto& text) { external_fields(f, text); }},
      {"external_many", [](hid_t f, const auto& text) { external_fields(f, text, 512); }},
      {"virtual", [](hid_t f, const auto& text) { virtual_fields(f, text, "fields", 3); }},
      {"virtual_self", [](hid_t f, auto&) { virtual_fields(f, ".", "fields", 3); }},
      {"virtual_many", [](hid_t f, const auto& text) { virtual_fields(f, text, "fields", 2000); }},
      {"virtual_name", [](hid_t f, const auto& text) { virtual_fields(f, "%b%b%%%b" + text, "fields", 2); }},
      {"unknown_filter", [](hid_t f, auto&) { unknown_filter(f); }},
      {"zip_bomb", [](hid_t f, auto&) { zip_bomb(f, 900000); }},
      {"never_written", [](hid_t f, auto&) { dataset(f, "fields", H5T_IEEE_F32LE, space_of(kFields), nullptr); }},
  };
}

Kinds structure_kinds() {
  return {
      {"soft_loop", [](hid_t f, auto&) { H5Lcreate_soft("fields", f, "fields", H5P_DEFAULT, H5P_DEFAULT); }},
      {"soft_nowhere", [](hid_t f, const auto& text) { H5Lcreate_soft(text.c_str(), f, "fields", 0, 0); }},
      {"external_link",
       [](hid_t f, const auto& text) { H5Lcreate_external(text.c_str(), "fields", f, "fields", 0, 0); }},
      {"group_loop",
       [](hid_t f, auto&) {
         many_groups(f, 1, false);
         H5Lcreate_hard(f, "/", f, "g0/up", H5P_DEFAULT, H5P_DEFAULT);
       }},
      {"fields_is_group", [](hid_t f, auto&) { H5Gcreate2(f, "fields", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT); }},
      {"fields_is_type", [](hid_t f, auto&) { H5Tcommit2(f, "fields", pair_type(), 0, 0, 0); }},
      {"doubled_groups", [](hid_t f, auto&) { doubled_groups(f, 30); }},
      {"deep_groups", [](hid_t f, auto&) { many_groups(f, 1500, true); }},
      {"many_groups", [](hid_t f, auto&) { many_groups(f, 20000, false); }},
      {"many_datasets", [](hid_t f, auto&) { many_datasets(f, 20000); }},
      {"many_attributes", [](hid_t f, auto&) { many_attributes(f, 5000); }},
      {"looping_scales", [](hid_t f, auto&) { looping_scales(f); }},
      {"dangling_scales", [](hid_t f, auto&) { dangling_scales(f); }},
      {"named_dataset",
       [](hid_t f, const auto& text) {
         good_fields(f);
         dataset(f, text.c_str(), H5T_IEEE_F32LE, space_of({2}), wave(2).data());
       }},
  };
}

Kinds attribute_kinds() {
  const double number = 7;
  return {
      {"channels_text", [](hid_t f, const auto& text) { good_fields(f), text_attribute(f, "channels", text); }},
      {"channels_number",
       [number](hid_t f, auto&) { good_fields(f), attribute(f, "channels", H5T_NATIVE_DOUBLE, &number); }},
      {"channels_long",
       [](hid_t f, const auto& text) { good_fields(f), text_attribute(f, "channels", repeated(text, 3, ",")); }},
      {"channels_list",
       [](hid_t f, const auto& text) {
         good_fields(f);
         text_array_attribute(f, "channels", {text.c_str(), "v", "height"});
       }},
      {"channels_null_list",
       [](hid_t f, auto&) {
         good_fields(f), text_array_attribute(f, "channels", {nullptr, nullptr, nullptr});
       }},
      {"channels_many",
       [](hid_t f, const auto& text) {
         good_fields(f);
         text_array_attribute(f, "channels", std::vector<const char*>(4000, text.c_str()));
       }},
      {"channels_empty",
       [](hid_t f, auto&) { good_fields(f), attribute(f, "channels", text_type(), nullptr, H5Screate(H5S_NULL)); }},
      {"units_text",
       [](hid_t f, const auto& text) {
         good_fields(f), good_channels(f);
         text_attribute(H5Dopen2(f, "fields", H5P_DEFAULT), "units", text);
       }},
  };
}

Kinds image_kinds() {
  static const int64_t kGood[] = {0, 1, 0, 1, 0, 1, 0, 1};
  static const double kDoubles[] = {0, 1, 0.5, 1e300, -1, 0, std::numeric_limits<double>::quiet_NaN(), 1};
  return {
      {"label_high", [](hid_t f, auto&) { long_labels(f, 2); }},
      {"label_negative", [](hid_t f, auto&) { long_labels(f, -1); }},
      {"label_huge", [](hid_t f, auto&) { long_labels(f, std::numeric_limits<int64_t>::max()); }},
      {"label_least", [](hid_t f, auto&) { long_labels(f, std::numeric_limits<int64_t>::min()); }},
      {"labels_unsigned", [](hid_t f, auto&) { labels_of(f, H5T_STD_U64LE, std::vector<uint64_t>(8, ~0ULL).data()); }},
      {"labels_floats", [](hid_t f, auto&) { labels_of(f, H5T_IEEE_F64LE, kDoubles); }},
      {"labels_texts", [](hid_t f, auto&) { labels_of(f, text_type(8), kGood); }},
      {"labels_short", [](hid_t f, auto&) { labels_of(f, H5T_STD_I64LE, kGood, {7}); }},
      {"labels_two_dims",
       [](hid_t f, auto&) {
         labels_of(f, H5T_STD_I64LE, kGood, {4, 2});
       }},
      {"labels_none", [](hid_t f, auto&) { images_of(f, kImages); }},
      {"labels_empty", [](hid_t f, auto&) { labels_of(f, H5T_STD_I64LE, kGood, {0}); }},
      {"classes_text", [](hid_t f, const auto& text) { labels_of_classes(f, text); }},
      {"classes_many", [](hid_t f, const auto& text) { labels_of_classes(f, repeated(text, 3, ",")); }},
      {"classes_commas", [](hid_t f, auto&) { labels_of_classes(f, std::string(60000, ',')); }},
      {"images_floats", [](hid_t f, auto&) { images_of(f, kImages, H5T_IEEE_F32LE), good_labels(f); }},
      {"images_wide",
       [](hid_t f, auto&) {
         images_of(f, {8, 8, 8, 4}), good_labels(f);
       }},
      {"images_three_dims",
       [](hid_t f, auto&) {
         images_of(f, {8, 8, 3}), good_labels(f);
       }},
      {"images_none",
       [](hid_t f, auto&) {
         images_of(f, {0, 8, 8, 3}), good_labels(f);
       }},
      {"images_no_size",
       [](hid_t f, auto&) {
         images_of(f, {8, 0, 8, 3}), good_labels(f);
       }},
      {"images_small",
       [](hid_t f, auto&) {
         images_of(f, {8, 1, 1, 3}), good_labels(f);
       }},
      {"images_long",
       [](hid_t f, auto&) {
         images_of(f, {8, 1, 100000, 3}), good_labels(f);
       }},
      {"images_sparse",
       [](hid_t f, auto&) {
         dataset(f, "images", H5T_STD_U8LE, space_of({8, 1 << 24, 1 << 24, 3}), nullptr, chunked({1, 8, 8, 3}));
         good_labels(f);
       }},
  };
}

std::vector<std::pair<const char*, Kinds>> all_kinds() {
  return {{"weather", shape_and_type_kinds()},
          {"weather", storage_kinds()},
          {"weather", structure_kinds()},
          {"weather", attribute_kinds()},
          {"images", image_kinds()}};
}

}  // namespace

int main(int argc, char** argv) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  for (const auto& [group, kinds] : all_kinds()) {
    for (const auto& [name, write] : kinds) {
      if (argc < 4) {
        std::printf("%s %s\n", group, name.c_str());
      } else if (name == argv[1]) {
        const hid_t file = H5Fcreate(argv[2], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
        write(file, argv[3]);
        return H5Fclose(file) < 0 || H5close() < 0 ? 1 : 0;
      }
    }
  }
  return argc < 4 ? 0 : 1;
}
