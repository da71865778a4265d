// The walk over the datasets of an HDF5 file, and what of them is told.
#include "data/hdf5/hdf5_tree.h"

#include <algorithm>

#include "data/datasets/coordinates.h"
#include "data/hdf5/hdf5_attributes.h"
#include "data/hdf5/hdf5_crash_guard.h"
#include "data/hdf5/hdf5_open.h"
#include "data/hdf5/hdf5_scales.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

struct Names {
  H5L_type_t link;
  std::vector<std::string> datasets = {};
};

// Exceptions must not pass through HDF5. A file that a link leads to need not be there.
herr_t note_dataset(hid_t group, const char* name, const H5L_info_t* link, void* names) {
  auto& noted = *static_cast<Names*>(names);
  if (link->type != noted.link) {
    return 0;
  }
  const Hid object(H5Oopen(group, name, H5P_DEFAULT), &H5Oclose);
  if (object && H5Iget_type(object.get()) == H5I_DATASET) {
    noted.datasets.emplace_back(name);
  }
  return object || link->type != H5L_TYPE_HARD ? 0 : -1;
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorClass::kBadData, what, "the file is damaged or truncated: copy or make it again");
}

// Those of the file itself, or whole ones of other files that it links to.
std::vector<std::string> dataset_names(hid_t file, const std::string& path, H5L_type_t link = H5L_TYPE_HARD) {
  Names names{link};
  if (H5Lvisit(file, H5_INDEX_NAME, H5_ITER_INC, &note_dataset, &names) < 0 && link == H5L_TYPE_HARD) {
    refuse(str("the datasets of ", path, " cannot be listed: ", hdf5_reason()));
  }
  H5Eclear2(H5E_DEFAULT);
  std::sort(names.datasets.begin(), names.datasets.end());
  return names.datasets;
}

void note_attribute(hid_t object, const std::string& name, Hdf5AttributeMap& attributes) {
  const Hid attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), &H5Aclose);
  const Hid type(H5Aget_type(attribute.get()), &H5Tclose);
  const Hid space(H5Aget_space(attribute.get()), &H5Sclose);
  const H5T_class_t kind = H5Tget_class(type.get());
  if (kind == H5T_STRING) {
    attributes[name] = hdf5_joined_text(object, name);
    return;
  }
  if (kind == H5T_FLOAT && H5Sget_simple_extent_ndims(space.get()) == 1) {
    if (auto numbers = hdf5_joined_numbers(object, name)) {
      attributes[name] = std::move(*numbers);
    }
    return;
  }
  if (H5Sget_simple_extent_npoints(space.get()) != 1) {
    return;
  }
  int64_t integer = 0;
  double number = 0.0;
  if (kind == H5T_INTEGER && H5Aread(attribute.get(), H5T_NATIVE_INT64, &integer) >= 0) {
    attributes[name] = integer;
  } else if (kind == H5T_FLOAT && H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, &number) >= 0) {
    attributes[name] = number;
  }
}

std::vector<std::string> attribute_names(hid_t object, const std::string& where) {
  std::vector<std::string> names;
  hsize_t next = 0;
  if (H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, &next, &hdf5_note_name, &names) < 0) {
    refuse(str("the attributes of ", where, " cannot be listed: ", hdf5_reason()));
  }
  return names;
}

Hdf5AttributeMap attributes_of(hid_t object, const std::vector<std::string>& names) {
  Hdf5AttributeMap attributes;
  for (const std::string& name : names) {
    if (H5Aexists(object, name.c_str()) > 0) {
      note_attribute(object, name, attributes);
    }
  }
  H5Eclear2(H5E_DEFAULT);
  return attributes;
}

// Why the bytes in the file are not the values in memory in one run; empty if they are.
std::string reason_scattered(hid_t dataset, const std::optional<StoredType>& stored, hid_t type) {
  if (!stored || !stored->is_native) {
    return str("values stored as ", hdf5_type_name(type));
  }
  const Hid creation(H5Dget_create_plist(dataset), &H5Pclose);
  if (H5Pget_layout(creation.get()) != H5D_CONTIGUOUS) {
    return "storage that is not contiguous";
  }
  return H5Pget_external_count(creation.get()) > 0 ? "external storage" : "";
}

void locate(hid_t opened, const std::string& where, int64_t file_bytes, Hdf5TreeDataset& dataset) {
  const haddr_t offset = H5Dget_offset(opened);
  if (offset == HADDR_UNDEF) {
    H5Eclear2(H5E_DEFAULT);
    dataset.why_not = "storage that was never allocated";
    return;
  }
  const int64_t bytes = hdf5_value_bytes(dataset.shape, dataset.type);
  const auto begin = static_cast<int64_t>(offset);
  if (bytes < 0 || begin < 0 || begin > file_bytes || bytes > file_bytes - begin) {
    refuse(str(where, " begins at byte ", offset, " and has ", bytes, " bytes, but the file has ", file_bytes));
  }
  dataset.offset = begin;
}

Hdf5TreeDataset describe(hid_t file, const std::string& path, const std::string& name, int64_t file_bytes,
                         const std::vector<std::string>& attributes) {
  Hdf5TreeDataset dataset;
  dataset.name = name;
  const std::string where = str(path, ": dataset '", name, "'");
  const Hid opened = hdf5_open_dataset(file, path, name);
  const Hid type(H5Dget_type(opened.get()), &H5Tclose);
  const Hid space(H5Dget_space(opened.get()), &H5Sclose);
  const auto stored = hdf5_stored_type(type.get());
  dataset.shape = hdf5_shape(space.get());
  dataset.type = stored ? stored->type : at::kFloat;
  dataset.attributes = attributes_of(opened.get(), attributes);
  dataset.why_not = reason_scattered(opened.get(), stored, type.get());
  if (dataset.why_not.empty()) {
    locate(opened.get(), where, file_bytes, dataset);
  }
  return dataset;
}

constexpr size_t kMostNumbers = 8;

std::string byte_order(hid_t type) {
  const H5T_class_t kind = H5Tget_class(type);
  if ((kind != H5T_FLOAT && kind != H5T_INTEGER) || H5Tget_size(type) == 1) {
    return "";
  }
  return H5Tget_order(type) == H5T_ORDER_BE ? ", big-endian" : ", little-endian";
}

std::string storage_name(hid_t creation, const std::vector<int64_t>& shape) {
  std::vector<hsize_t> chunk(shape.size());
  switch (H5Pget_layout(creation)) {
    case H5D_CHUNKED:
      H5Pget_chunk(creation, static_cast<int>(chunk.size()), chunk.data());
      return str("chunks (", join(chunk), ")");
    case H5D_CONTIGUOUS:
      return H5Pget_external_count(creation) > 0 ? "external files" : "contiguous";
    case H5D_COMPACT:
      return "compact (in the header)";
    case H5D_VIRTUAL:
      return "virtual (parts of other datasets)";
    default:
      return "unknown storage";
  }
}

std::string channels_of(hid_t file, hid_t dataset) {
  std::string names = hdf5_text_attribute(dataset, "channels");
  if (names.empty()) {
    names = hdf5_text_attribute(file, "channels");
  }
  return names.empty() ? hdf5_scale_texts(dataset, 1) : names;
}

// Few numbers are shown, of more how many there are.
struct ShownValue {
  std::string operator()(const std::vector<double>& numbers) const {
    return numbers.size() <= kMostNumbers ? join(numbers) : str(numbers.size(), " numbers");
  }
  std::string operator()(const auto& value) const { return str(value); }
};

Hdf5Description describe(hid_t file, const std::string& path, const std::string& name) {
  Hdf5Description description;
  description.name = name;
  const Hid dataset = hdf5_open_dataset(file, path, name);
  const Hid type(H5Dget_type(dataset.get()), &H5Tclose);
  const Hid space(H5Dget_space(dataset.get()), &H5Sclose);
  description.shape = hdf5_shape(space.get());
  const Hid creation(H5Dget_create_plist(dataset.get()), &H5Pclose);
  description.type = hdf5_type_name(type.get()) + byte_order(type.get());
  description.storage = storage_name(creation.get(), description.shape);
  for (const Hdf5Filter& filter : hdf5_filters(creation.get())) {
    description.filters.push_back(filter.name);
  }
  description.stored_bytes = static_cast<int64_t>(H5Dget_storage_size(dataset.get()));
  description.dims = hdf5_dimension_names(dataset.get());
  if (description.shape.size() == kFieldDims) {
    description.channels = channels_of(file, dataset.get());
  }
  for (const auto& [key, value] : attributes_of(dataset.get(), attribute_names(dataset.get(), path))) {
    description.attributes.emplace_back(key, std::visit(ShownValue(), value));
  }
  description.has_numbers = hdf5_stored_type(type.get()).has_value();
  if (description.has_numbers) {
    description.layout = inspect_dataset(path, name);
  }
  return description;
}

}  // namespace

Hdf5Tree read_hdf5_tree(const std::string& path, const std::vector<std::string>& file_attributes,
                        const std::vector<std::string>& dataset_attributes) {
  Hdf5Tree tree;
  tree.file_bytes = existing_file_bytes(path);
  const Hdf5CrashGuard guard(path);
  const Hid file = hdf5_open_file(path);
  tree.attributes = attributes_of(file.get(), file_attributes);
  for (const std::string& name : dataset_names(file.get(), path)) {
    tree.datasets.push_back(describe(file.get(), path, name, tree.file_bytes, dataset_attributes));
  }
  return tree;
}

std::vector<Hdf5Description> describe_hdf5_file(const std::string& path) {
  existing_file_bytes(path);
  const Hdf5CrashGuard guard(path);
  const Hid file = hdf5_open_file(path);
  std::vector<Hdf5Description> descriptions;
  for (const H5L_type_t link : {H5L_TYPE_HARD, H5L_TYPE_EXTERNAL}) {
    for (const std::string& name : dataset_names(file.get(), path, link)) {
      descriptions.push_back(describe(file.get(), path, name));
      descriptions.back().is_linked = link == H5L_TYPE_EXTERNAL;
    }
  }
  return descriptions;
}

}  // namespace vit_hybrid::data
