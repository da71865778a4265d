// The attributes of the HDF5 dimension scale specification, read and written here because HDF5's own calls for them are
// in a second library (hdf5_hl), of which every build would need the parallel variant; and scales of texts.
#include "data/hdf5/hdf5_scales.h"

#include <map>

#include "data/hdf5/hdf5_open.h"
#include "data/hdf5/hdf5_texts.h"
#include "data/hdf5/hdf5_virtual.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

constexpr char kScaleClass[] = "DIMENSION_SCALE";
constexpr int64_t kMostScaleBytes = int64_t{1} << 14;  // of references to scales: 2,000

std::string last_part(const std::string& name) {
  return name.substr(name.rfind('/') + 1);
}

size_t num_dims_of(hid_t dataset) {
  const Hid space(H5Dget_space(dataset), &H5Sclose);
  return hdf5_shape(space.get()).size();
}

std::vector<std::string> labels_of(hid_t dataset, size_t num_dims) {
  const std::vector<std::string> labels(num_dims);
  if (H5Aexists(dataset, kHdf5DimLabels) <= 0) {
    return labels;
  }
  const Hid attribute(H5Aopen(dataset, kHdf5DimLabels, H5P_DEFAULT), &H5Aclose);
  const auto texts = hdf5_texts(attribute.get(), str("attribute '", kHdf5DimLabels, "'"));
  return texts.size() == num_dims ? texts : labels;
}

// An element of kHdf5DatasetList.
struct ScaleUse {
  hobj_ref_t dataset;
  int dim;
  int padding = 0;  // is written too: the same data make the same file
};

Hid scale_use_type() {
  Hid type(H5Tcreate(H5T_COMPOUND, sizeof(ScaleUse)), &H5Tclose);
  H5Tinsert(type.get(), "dataset", HOFFSET(ScaleUse, dataset), H5T_STD_REF_OBJ);
  H5Tinsert(type.get(), "dimension", HOFFSET(ScaleUse, dim), H5T_NATIVE_INT);
  return type;
}

hobj_ref_t reference_to(hid_t file, const std::string& name, const std::string& doing) {
  hobj_ref_t reference = 0;
  hdf5_check(H5Rcreate(&reference, file, name.c_str(), H5R_OBJECT, -1), ErrorClass::kIo, doing);
  return reference;
}

// As the specification has it: of 16 bytes.
void make_scale(hid_t dataset, const std::string& doing) {
  const Hid type(H5Tcopy(H5T_C_S1), &H5Tclose);
  H5Tset_size(type.get(), sizeof(kScaleClass));
  const Hid space(H5Screate(H5S_SCALAR), &H5Sclose);
  const Hid attribute = hdf5_own(H5Acreate2(dataset, "CLASS", type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
                                 &H5Aclose, ErrorClass::kIo, doing);
  hdf5_check(H5Awrite(attribute.get(), type.get(), kScaleClass), ErrorClass::kIo, doing);
}

void add_list(hid_t object, const char* name, hid_t type, size_t length, const void* elements,
              const std::string& doing) {
  const hsize_t count = length;
  const Hid space(H5Screate_simple(1, &count, nullptr), &H5Sclose);
  const Hid attribute = hdf5_own(H5Acreate2(object, name, type, space.get(), H5P_DEFAULT, H5P_DEFAULT), &H5Aclose,
                                 ErrorClass::kIo, doing);
  hdf5_check(H5Awrite(attribute.get(), type, elements), ErrorClass::kIo, doing);
}

}  // namespace

std::string hdf5_object_name(hid_t object) {
  const ssize_t length = H5Iget_name(object, nullptr, 0);
  std::string name(static_cast<size_t>(length > 0 ? length : 0), '\0');
  H5Iget_name(object, name.data(), name.size() + 1);
  return name;
}

std::vector<std::vector<Hid>> hdf5_attached_scales(hid_t dataset) {
  const size_t num_dims = num_dims_of(dataset);
  std::vector<std::vector<Hid>> scales(num_dims);
  if (H5Aexists(dataset, kHdf5ScaleList) <= 0) {
    return scales;
  }
  const Hid attribute(H5Aopen(dataset, kHdf5ScaleList, H5P_DEFAULT), &H5Aclose);
  hdf5_require_few_bytes(attribute.get(), kMostScaleBytes, str("attribute '", kHdf5ScaleList, "'"));
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
        hdf5_check_storage(scale.get(),
                           str(hdf5_file_name(scale.get()), ": scale '", hdf5_object_name(scale.get()), "'"));
        scales[d].push_back(std::move(scale));
      }
    }
  }
  H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, lists.data());
  return scales;
}

std::vector<std::string> hdf5_dimension_names(hid_t dataset) {
  const size_t num_dims = num_dims_of(dataset);
  std::vector<std::string> names = labels_of(dataset, num_dims);
  const auto scales = hdf5_attached_scales(dataset);
  for (size_t d = 0; d < num_dims; ++d) {
    if (!scales[d].empty()) {
      names[d] = last_part(hdf5_object_name(scales[d].front().get()));
    }
  }
  H5Eclear2(H5E_DEFAULT);
  return names;
}

std::string hdf5_scale_texts(hid_t dataset, size_t dim) {
  const size_t num_dims = num_dims_of(dataset);
  const auto scales = hdf5_attached_scales(dataset);
  std::string joined;
  for (size_t i = 0; dim < num_dims && i < scales[dim].size() && joined.empty(); ++i) {
    const hid_t scale = scales[dim][i].get();
    const std::string what = str("scale '", shown(hdf5_object_name(scale)), "'");
    if (const Hid type(H5Dget_type(scale), &H5Tclose); H5Tget_class(type.get()) == H5T_STRING) {
      hdf5_require_parts(scale, str(hdf5_file_name(scale), ": ", what));
    }
    joined = join(hdf5_texts(scale, what), ",");
  }
  H5Eclear2(H5E_DEFAULT);
  return joined;
}

void hdf5_attach_scales(hid_t dataset, const std::vector<std::vector<std::string>>& names, const std::string& doing) {
  std::vector<std::vector<hobj_ref_t>> scales(names.size());
  std::map<std::string, std::vector<ScaleUse>> uses;  // of each scale
  const hobj_ref_t self = reference_to(dataset, ".", doing);
  for (size_t d = 0; d < names.size(); ++d) {
    for (const std::string& name : names[d]) {
      scales[d].push_back(reference_to(dataset, name, doing));
      uses[name].push_back({self, static_cast<int>(d)});
    }
  }
  if (uses.empty()) {
    return;
  }
  for (const auto& [name, of_scale] : uses) {
    const Hid scale = hdf5_own(H5Dopen2(dataset, name.c_str(), H5P_DEFAULT), &H5Dclose, ErrorClass::kIo, doing);
    if (H5Aexists(scale.get(), "CLASS") <= 0) {
      make_scale(scale.get(), doing);
    }
    add_list(scale.get(), kHdf5DatasetList, scale_use_type().get(), of_scale.size(), of_scale.data(), doing);
  }
  std::vector<hvl_t> lists;
  for (auto& of_dim : scales) {
    lists.push_back({of_dim.size(), of_dim.data()});
  }
  const Hid type(H5Tvlen_create(H5T_STD_REF_OBJ), &H5Tclose);
  add_list(dataset, kHdf5ScaleList, type.get(), lists.size(), lists.data(), doing);
}

}  // namespace vit_hybrid::data
