// Types, storage, filters, scales and attributes of all datasets of a file.
#include "data/hdf5/hdf5_description.h"

#include <variant>

#include "data/hdf5/hdf5_crash_guard.h"
#include "data/hdf5/hdf5_open.h"
#include "data/hdf5/hdf5_scales.h"
#include "data/hdf5/hdf5_tree.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr size_t kFieldDims = 4;  // time, channel, latitude, longitude
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

std::vector<std::string> filter_names(hid_t creation) {
  std::vector<std::string> names;
  for (int i = 0; i < H5Pget_nfilters(creation); ++i) {
    char name[64] = {};
    unsigned flags = 0;
    size_t num_parameters = 0;
    H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &num_parameters, nullptr, sizeof(name), name, nullptr);
    names.emplace_back(name);
  }
  return names;
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

Hdf5Description describe(hid_t file, const std::string& path, const std::string& name,
                         const Hdf5AttributeMap& attributes) {
  Hdf5Description description;
  description.name = name;
  const Hid dataset = hdf5_open_dataset(file, path, name);
  const Hid type(H5Dget_type(dataset.get()), &H5Tclose);
  const Hid space(H5Dget_space(dataset.get()), &H5Sclose);
  description.shape = hdf5_shape(space.get());
  const Hid creation(H5Dget_create_plist(dataset.get()), &H5Pclose);
  description.type = hdf5_type_name(type.get()) + byte_order(type.get());
  description.storage = storage_name(creation.get(), description.shape);
  description.filters = filter_names(creation.get());
  description.stored_bytes = static_cast<int64_t>(H5Dget_storage_size(dataset.get()));
  description.dims = hdf5_dimension_names(dataset.get());
  if (description.shape.size() == kFieldDims) {
    description.channels = channels_of(file, dataset.get());
  }
  for (const auto& [key, value] : attributes) {
    description.attributes.emplace_back(key, std::visit(ShownValue(), value));
  }
  description.has_numbers = hdf5_stored_type(type.get()).has_value();
  if (description.has_numbers) {
    description.layout = inspect_dataset(path, name);
  }
  return description;
}

// Whole datasets of other files, which the walk over this one leaves out.
herr_t note_linked(hid_t group, const char* name, const H5L_info_t* link, void* names) {
  if (link->type == H5L_TYPE_EXTERNAL) {
    const Hid object(H5Oopen(group, name, H5P_DEFAULT), &H5Oclose);
    if (object && H5Iget_type(object.get()) == H5I_DATASET) {
      static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    }
  }
  return 0;
}

}  // namespace

std::vector<Hdf5Description> describe_hdf5_file(const std::string& path) {
  const Hdf5Tree tree = read_hdf5_tree(path);
  const Hdf5CrashGuard guard(path);
  const Hid file = hdf5_open_file(path);
  std::vector<Hdf5Description> descriptions;
  for (const Hdf5TreeDataset& dataset : tree.datasets) {
    descriptions.push_back(describe(file.get(), path, dataset.name, dataset.attributes));
  }
  std::vector<std::string> linked;
  H5Lvisit(file.get(), H5_INDEX_NAME, H5_ITER_INC, &note_linked, &linked);
  H5Eclear2(H5E_DEFAULT);
  for (const std::string& name : linked) {
    descriptions.push_back(describe(file.get(), path, name, {}));
    descriptions.back().is_linked = true;
  }
  return descriptions;
}

}  // namespace vit_hybrid::data
