// Test files, written with plain serial HDF5 calls.
#include "tests/support/hdf5_files.h"

#include <ATen/ops/arange.h>
#include <hdf5.h>

#include "tests/support/checked_id.h"

namespace vit_hybrid::testing {

namespace {

hid_t memory_type(const at::Tensor& values) {
  switch (values.scalar_type()) {
    case at::kFloat:
      return H5T_NATIVE_FLOAT;
    case at::kDouble:
      return H5T_NATIVE_DOUBLE;
    case at::kByte:
      return H5T_NATIVE_UINT8;
    case at::kInt:
      return H5T_NATIVE_INT32;
    default:
      return H5T_NATIVE_INT64;
  }
}

// IEEE half precision: sign 1 bit, exponent 5 bits of bias 15, fraction 10 bits.
hid_t half_type() {
  const hid_t type = checked_id(H5Tcopy(H5T_IEEE_F32LE));
  H5Tset_fields(type, 15, 10, 5, 0, 10);
  H5Tset_ebias(type, 15);
  H5Tset_size(type, 2);
  return type;
}

hid_t stored_type(const TestDataset& dataset) {
  if (dataset.stored == Stored::kHalf) {
    return half_type();
  }
  const hid_t type = checked_id(H5Tcopy(memory_type(dataset.values)));
  if (dataset.stored == Stored::kBigEndian) {
    H5Tset_order(type, H5T_ORDER_BE);
  }
  return type;
}

void write_dataset(hid_t file, const TestDataset& dataset) {
  const auto sizes = dataset.values.sizes();
  const std::vector<hsize_t> extents(sizes.begin(), sizes.end());
  const std::vector<hsize_t> chunk(dataset.chunk.begin(), dataset.chunk.end());
  const hid_t space = checked_id(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr));
  const hid_t creation = checked_id(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_obj_track_times(creation, false);  // the same data make the same file, in whichever second
  if (!chunk.empty()) {
    H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data());
  }
  if (dataset.shuffle) {
    H5Pset_shuffle(creation);
  }
  if (dataset.gzip > 0) {
    H5Pset_deflate(creation, static_cast<unsigned>(dataset.gzip));
  }
  if (dataset.checksum) {
    H5Pset_fletcher32(creation);
  }
  if (dataset.scale_offset) {
    H5Pset_scaleoffset(creation, H5Z_SO_FLOAT_DSCALE, 0);
  }
  const hid_t type = stored_type(dataset);
  const hid_t stored =
      checked_id(H5Dcreate2(file, dataset.name.c_str(), type, space, H5P_DEFAULT, creation, H5P_DEFAULT));
  const int64_t rows = dataset.rows_written < 0 ? sizes[0] : dataset.rows_written;
  if (rows > 0) {
    std::vector<hsize_t> written = extents;
    written[0] = static_cast<hsize_t>(rows);
    const std::vector<hsize_t> start(extents.size(), 0);
    checked_id(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, written.data(), nullptr));
    const hid_t memory = checked_id(H5Screate_simple(static_cast<int>(written.size()), written.data(), nullptr));
    checked_id(H5Dwrite(stored, memory_type(dataset.values), memory, space, H5P_DEFAULT,
                        dataset.values.contiguous().const_data_ptr()));
    H5Sclose(memory);
  }
  H5Dclose(stored);
  H5Tclose(type);
  H5Pclose(creation);
  H5Sclose(space);
}

void write_channels(hid_t file, const std::vector<std::string>& channels) {
  std::vector<const char*> pointers;
  for (const std::string& channel : channels) {
    pointers.push_back(channel.c_str());
  }
  const hsize_t count = pointers.size();
  const hid_t type = checked_id(H5Tcopy(H5T_C_S1));
  H5Tset_size(type, H5T_VARIABLE);
  const hid_t space = checked_id(H5Screate_simple(1, &count, nullptr));
  const hid_t attribute = checked_id(H5Acreate2(file, "channels", type, space, H5P_DEFAULT, H5P_DEFAULT));
  checked_id(H5Awrite(attribute, type, pointers.data()));
  H5Aclose(attribute);
  H5Sclose(space);
  H5Tclose(type);
}

}  // namespace

at::Tensor counted(const std::vector<int64_t>& shape, at::ScalarType type) {
  int64_t count = 1;
  for (const int64_t extent : shape) {
    count *= extent;
  }
  return at::arange(count, type).reshape(shape);
}

void write_virtual_file(const std::string& path, const std::string& name, const std::vector<std::string>& sources,
                        const std::vector<int64_t>& shape) {
  const hid_t file = checked_id(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  const hid_t creation = checked_id(H5Pcreate(H5P_DATASET_CREATE));
  const std::vector<hsize_t> part(shape.begin(), shape.end());
  std::vector<hsize_t> all = part;
  all.front() *= sources.size();
  const int rank = static_cast<int>(shape.size());
  const hid_t space = checked_id(H5Screate_simple(rank, all.data(), nullptr));
  const hid_t part_space = checked_id(H5Screate_simple(rank, part.data(), nullptr));
  std::vector<hsize_t> start(shape.size(), 0);
  for (const std::string& source : sources) {
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, part.data(), nullptr);
    checked_id(H5Pset_virtual(creation, space, source.c_str(), name.c_str(), part_space));
    start.front() += part.front();
  }
  H5Sselect_all(space);
  H5Dclose(checked_id(H5Dcreate2(file, name.c_str(), H5T_NATIVE_FLOAT, space, H5P_DEFAULT, creation, H5P_DEFAULT)));
  H5Sclose(part_space);
  H5Sclose(space);
  H5Pclose(creation);
  H5Fclose(file);
}

void add_external_link(const std::string& path, const std::string& name, const std::string& target) {
  const hid_t file = checked_id(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
  checked_id(H5Lcreate_external(target.c_str(), name.c_str(), file, name.c_str(), H5P_DEFAULT, H5P_DEFAULT));
  H5Fclose(file);
}

void write_hdf5_file(const std::string& path, const std::vector<TestDataset>& datasets,
                     const std::vector<std::string>& channels) {
  const hid_t file = checked_id(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  for (const TestDataset& dataset : datasets) {
    write_dataset(file, dataset);
  }
  if (!channels.empty()) {
    write_channels(file, channels);
  }
  H5Fclose(file);
}

}  // namespace vit_hybrid::testing
