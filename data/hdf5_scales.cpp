// The attributes DIMENSION_LIST and DIMENSION_LABELS of the HDF5 dimension scale specification, and scales of texts.
#include "data/hdf5_scales.h"

#include <cstring>

#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

std::string last_part(const std::string& name) {
  return name.substr(name.rfind('/') + 1);
}

std::string object_name(hid_t object) {
  const ssize_t length = H5Iget_name(object, nullptr, 0);
  std::string name(static_cast<size_t>(length > 0 ? length : 0), '\0');
  H5Iget_name(object, name.data(), name.size() + 1);
  return name;
}

// The scales attached to each dim, opened.
std::vector<std::vector<Hid>> scales_of(hid_t dataset, size_t num_dims) {
  std::vector<std::vector<Hid>> scales(num_dims);
  if (H5Aexists(dataset, "DIMENSION_LIST") <= 0) {
    return scales;
  }
  const Hid attribute(H5Aopen(dataset, "DIMENSION_LIST", H5P_DEFAULT), &H5Aclose);
  const Hid type(H5Tvlen_create(H5T_STD_REF_OBJ), &H5Tclose);
  const Hid space(H5Aget_space(attribute.get()), &H5Sclose);
  std::vector<hvl_t> lists(num_dims, hvl_t{0, nullptr});
  if (H5Sget_simple_extent_npoints(space.get()) != static_cast<hssize_t>(num_dims) ||
      H5Aread(attribute.get(), type.get(), lists.data()) < 0) {
    return scales;
  }
  for (size_t d = 0; d < num_dims; ++d) {
    const auto* references = static_cast<const hobj_ref_t*>(lists[d].p);
    for (size_t i = 0; i < lists[d].len; ++i) {
      Hid scale(H5Rdereference2(dataset, H5P_DEFAULT, H5R_OBJECT, references + i), &H5Oclose);
      if (scale && H5Iget_type(scale.get()) == H5I_DATASET) {
        scales[d].push_back(std::move(scale));
      }
    }
  }
  H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, lists.data());
  return scales;
}

std::vector<std::string> labels_of(hid_t dataset, size_t num_dims) {
  std::vector<std::string> labels(num_dims);
  if (H5Aexists(dataset, "DIMENSION_LABELS") <= 0) {
    return labels;
  }
  const Hid attribute(H5Aopen(dataset, "DIMENSION_LABELS", H5P_DEFAULT), &H5Aclose);
  const Hid type(H5Aget_type(attribute.get()), &H5Tclose);
  const Hid space(H5Aget_space(attribute.get()), &H5Sclose);
  if (H5Tis_variable_str(type.get()) <= 0 ||
      H5Sget_simple_extent_npoints(space.get()) != static_cast<hssize_t>(num_dims)) {
    return labels;
  }
  std::vector<char*> texts(num_dims, nullptr);
  if (H5Aread(attribute.get(), type.get(), texts.data()) >= 0) {
    for (size_t d = 0; d < num_dims; ++d) {
      labels[d] = texts[d] == nullptr ? "" : texts[d];
      H5free_memory(texts[d]);
    }
  }
  return labels;
}

// All texts of a dataset of them; nothing if it holds anything else or cannot be read.
std::vector<std::string> read_texts(hid_t dataset) {
  const Hid type(H5Dget_type(dataset), &H5Tclose);
  const Hid space(H5Dget_space(dataset), &H5Sclose);
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  std::vector<std::string> texts;
  if (H5Tget_class(type.get()) != H5T_STRING || count <= 0) {
    return texts;
  }
  if (H5Tis_variable_str(type.get()) > 0) {
    std::vector<char*> pointers(static_cast<size_t>(count), nullptr);
    if (H5Dread(dataset, type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, pointers.data()) >= 0) {
      for (char* pointer : pointers) {
        texts.emplace_back(pointer == nullptr ? "" : pointer);
        H5free_memory(pointer);
      }
    }
    return texts;
  }
  const size_t size = H5Tget_size(type.get());
  std::vector<char> bytes(static_cast<size_t>(count) * size);
  if (H5Dread(dataset, type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()) >= 0) {
    for (size_t at = 0; at < bytes.size(); at += size) {
      texts.emplace_back(bytes.data() + at, strnlen(bytes.data() + at, size));
    }
  }
  return texts;
}

size_t num_dims_of(hid_t dataset) {
  const Hid space(H5Dget_space(dataset), &H5Sclose);
  return hdf5_shape(space.get()).size();
}

}  // namespace

std::vector<std::string> hdf5_dimension_names(hid_t dataset) {
  const size_t num_dims = num_dims_of(dataset);
  std::vector<std::string> names = labels_of(dataset, num_dims);
  const auto scales = scales_of(dataset, num_dims);
  for (size_t d = 0; d < num_dims; ++d) {
    if (!scales[d].empty()) {
      names[d] = last_part(object_name(scales[d].front().get()));
    }
  }
  H5Eclear2(H5E_DEFAULT);
  return names;
}

std::string hdf5_scale_texts(hid_t dataset, size_t dim) {
  const size_t num_dims = num_dims_of(dataset);
  const auto scales = scales_of(dataset, num_dims);
  std::string joined;
  for (size_t i = 0; dim < num_dims && i < scales[dim].size() && joined.empty(); ++i) {
    joined = join(read_texts(scales[dim][i].get()), ",");
  }
  H5Eclear2(H5E_DEFAULT);
  return joined;
}

}  // namespace vit_hybrid::data
