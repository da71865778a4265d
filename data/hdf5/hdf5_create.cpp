// Creation of HDF5 files and datasets.
#include "data/hdf5/hdf5_create.h"

#include <unistd.h>

#include <variant>

#include "data/hdf5/hdf5_attributes.h"
#include "data/reading/file_seal.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr hsize_t kAlignFrom = 64 * 1024;  // bytes of an object that is worth aligning
constexpr hsize_t kAlignment = 4096;
// What HDF5 keeps of a dataset with some attributes, and of a file: a little more than it takes.
constexpr int64_t kDatasetMetadata = 1024;
constexpr int64_t kFileMetadata = 16 * 1024;

}  // namespace

Hdf5Room hdf5_room_for_seal(const std::vector<Hdf5DatasetSpec>& datasets, const Hdf5Attributes& attributes) {
  const auto num_datasets = static_cast<int64_t>(datasets.size());
  Hdf5Room room{seal_block_bytes(num_datasets + 1), kFileMetadata + num_datasets * kDatasetMetadata};
  for (const auto& [name, value] : attributes) {
    if (const auto* const text = std::get_if<std::string>(&value)) {
      room.metadata_bytes += static_cast<int64_t>(text->size());
    } else if (const auto* const numbers = std::get_if<std::vector<double>>(&value)) {
      room.metadata_bytes += static_cast<int64_t>(numbers->size() * sizeof(double));
    }
  }
  return room;
}

Hid hdf5_create_file(const std::string& path, const Hid& access, const Hdf5Room& room) {
  const Hid creation(H5Pcreate(H5P_FILE_CREATE), &H5Pclose);
  H5Pset_alignment(access.get(), kAlignFrom, kAlignment);
  if (room.block_bytes > 0) {
    H5Pset_userblock(creation.get(), static_cast<hsize_t>(room.block_bytes));
    H5Pset_meta_block_size(access.get(), static_cast<hsize_t>(room.metadata_bytes));
  }
  return hdf5_create_anew(path, creation, access);
}

Hid hdf5_create_anew(const std::string& path, const Hid& creation, const Hid& access) {
  return hdf5_own(H5Fcreate(path.c_str(), H5F_ACC_EXCL, creation ? creation.get() : H5P_DEFAULT, access.get()),
                  &H5Fclose, ErrorClass::kCannotCreate, str("create ", path));
}

void hdf5_make_way(const std::string& path) {
  ::unlink(path.c_str());  // where it fails, the creation that follows says why
}

Hid hdf5_create_dataset(hid_t file, const Hdf5DatasetSpec& spec, const std::string& path) {
  const std::vector<hsize_t> extents(spec.shape.begin(), spec.shape.end());
  const Hid space(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), &H5Sclose);
  const Hid link(H5Pcreate(H5P_LINK_CREATE), &H5Pclose);
  H5Pset_create_intermediate_group(link.get(), 1);
  const Hid creation(H5Pcreate(H5P_DATASET_CREATE), &H5Pclose);
  H5Pset_layout(creation.get(), H5D_CONTIGUOUS);
  H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER);
  H5Pset_obj_track_times(creation.get(), false);  // the same data make the same file
  Hid dataset = hdf5_own(H5Dcreate2(file, spec.name.c_str(), hdf5_memory_type(spec.type), space.get(), link.get(),
                                    creation.get(), H5P_DEFAULT),
                         &H5Dclose, ErrorClass::kCannotCreate, str("create dataset '", spec.name, "' in ", path));
  hdf5_add_attributes(dataset.get(), spec.attributes, path);
  return dataset;
}

}  // namespace vit_hybrid::data
