// Whole copies by HDF5 where they are right, else a new dataset and its values in blocks.
#include "data/hdf5/hdf5_dataset_copy.h"

#include <algorithm>
#include <vector>

#include "data/reading/box_runs.h"

namespace vit_hybrid::data {

namespace {

constexpr size_t kBlockBytes = size_t{4} << 20;

// H5Ocopy copies the fill value of a variable-length type as the bytes in the file, which are an address in the old
// one, and sets references to nothing.
bool is_copied_whole(hid_t dataset) {
  const Hid type(H5Dget_type(dataset), &H5Tclose);
  return !hdf5_has_values_elsewhere(dataset) && !hdf5_refers_to_its_file(type.get());
}

// The value itself, not where it lies in the old file.
void set_fill_value(hid_t from, hid_t type, hid_t creation, const std::string& doing) {
  H5D_fill_value_t kind = H5D_FILL_VALUE_UNDEFINED;
  hdf5_check(H5Pfill_value_defined(from, &kind), ErrorClass::kIo, doing);
  if (kind != H5D_FILL_VALUE_USER_DEFINED) {
    return;
  }
  std::vector<char> value(H5Tget_size(type));
  hdf5_check(H5Pget_fill_value(from, type, value.data()), ErrorClass::kIo, doing);
  hdf5_check(H5Pset_fill_value(creation, type, value.data()), ErrorClass::kIo, doing);
  const Hid one(H5Screate(H5S_SCALAR), &H5Sclose);
  H5Dvlen_reclaim(type, one.get(), H5P_DEFAULT, value.data());
}

// Empty where there are no chunks.
std::vector<hsize_t> chunk_of(hid_t creation, size_t rank) {
  std::vector<hsize_t> chunk(H5Pget_layout(creation) == H5D_CHUNKED ? rank : 0);
  if (!chunk.empty()) {
    H5Pget_chunk(creation, static_cast<int>(rank), chunk.data());
  }
  return chunk;
}

// Storage, chunks and filters of `from`, or contiguous storage where its values are in other files.
Hid creation_like(hid_t dataset, hid_t type, const std::string& doing) {
  const Hid from = hdf5_own(H5Dget_create_plist(dataset), &H5Pclose, ErrorClass::kIo, doing);
  Hid creation(H5Pcreate(H5P_DATASET_CREATE), &H5Pclose);
  if (!hdf5_has_values_elsewhere(dataset)) {
    H5Pset_layout(creation.get(), H5Pget_layout(from.get()));
    if (H5Pget_layout(from.get()) == H5D_CHUNKED) {
      const Hid space(H5Dget_space(dataset), &H5Sclose);
      const std::vector<hsize_t> chunk = chunk_of(from.get(), hdf5_shape(space.get()).size());
      hdf5_check(H5Pset_chunk(creation.get(), static_cast<int>(chunk.size()), chunk.data()), ErrorClass::kIo, doing);
    }
    for (int i = 0; i < H5Pget_nfilters(from.get()); ++i) {
      unsigned flags = 0;
      std::vector<unsigned> parameters(64);
      size_t count = parameters.size();
      const H5Z_filter_t filter =
          H5Pget_filter2(from.get(), static_cast<unsigned>(i), &flags, &count, parameters.data(), 0, nullptr, nullptr);
      hdf5_check(H5Pset_filter(creation.get(), filter, flags, std::min(count, parameters.size()), parameters.data()),
                 ErrorClass::kIo, doing);
    }
  }
  H5Pset_obj_track_times(creation.get(), false);  // the same data make the same file
  set_fill_value(from.get(), type, creation.get(), doing);
  return creation;
}

Hid space_like(hid_t dataset) {
  Hid space(H5Dget_space(dataset), &H5Sclose);
  if (!hdf5_has_values_elsewhere(dataset)) {
    return space;
  }
  const auto shape = hdf5_shape(space.get());  // what lies in one run has no room to grow
  const std::vector<hsize_t> extents(shape.begin(), shape.end());
  return {H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), &H5Sclose};
}

// A part of a dataset, in elements; of a single value without dims.
struct Box {
  std::vector<hsize_t> start;
  std::vector<hsize_t> extents;
};

// Of a few MiB and of whole chunks (`chunk` is empty where there are none): no chunk is decoded twice.
std::vector<Box> boxes_of_all(const std::vector<int64_t>& shape, const std::vector<hsize_t>& chunk, size_t item) {
  Box box{std::vector<hsize_t>(shape.size(), 0), {shape.begin(), shape.end()}};
  std::vector<hsize_t> most = box.extents;
  hsize_t bytes = static_cast<hsize_t>(num_elements(shape)) * item;
  for (size_t d = 0; d < shape.size() && bytes > kBlockBytes; ++d) {
    const hsize_t unit = chunk.empty() ? 1 : chunk[d];
    bytes = std::max<hsize_t>(bytes / most[d], 1);
    const hsize_t units = (std::max<hsize_t>(kBlockBytes / bytes, 1) + unit - 1) / unit;
    most[d] = std::min(units * unit, most[d]);
    bytes *= most[d];
  }
  std::vector<Box> boxes;
  for (bool is_there = true; is_there;) {
    for (size_t d = 0; d < shape.size(); ++d) {
      box.extents[d] = std::min(most[d], static_cast<hsize_t>(shape[d]) - box.start[d]);
    }
    boxes.push_back(box);
    is_there = false;
    for (size_t d = shape.size(); !is_there && d-- > 0;) {
      box.start[d] += most[d];
      is_there = box.start[d] < static_cast<hsize_t>(shape[d]);
      box.start[d] = is_there ? box.start[d] : 0;
    }
  }
  return boxes;
}

#if H5_VERSION_GE(1, 10, 5)
hsize_t num_stored_chunks(hid_t dataset, hid_t space) {
  hsize_t count = 0;
  H5Dget_num_chunks(dataset, space, &count);
  return count;
}

std::vector<Box> stored_chunks(hid_t dataset, hid_t space, const std::vector<hsize_t>& chunk) {
  const auto shape = hdf5_shape(space);
  const hsize_t count = num_stored_chunks(dataset, space);
  std::vector<Box> boxes(count, {std::vector<hsize_t>(shape.size()), chunk});
  for (hsize_t i = 0; i < count; ++i) {
    H5Dget_chunk_info(dataset, space, i, boxes[i].start.data(), nullptr, nullptr, nullptr);
    for (size_t d = 0; d < shape.size(); ++d) {
      boxes[i].extents[d] = std::min(chunk[d], static_cast<hsize_t>(shape[d]) - boxes[i].start[d]);
    }
  }
  return boxes;
}

// Whether less than half of the values have a chunk: there may be terabytes that nobody ever wrote.
bool is_sparse(hid_t dataset, hid_t space, const std::vector<hsize_t>& chunk) {
  double stored = static_cast<double>(num_stored_chunks(dataset, space));
  for (const hsize_t extent : chunk) {
    stored *= static_cast<double>(extent);
  }
  return 2.0 * stored < static_cast<double>(H5Sget_simple_extent_npoints(space));
}
#endif

// HDF5 1.10 cannot read values that were never written of filtered chunks of variable-length values: it would write
// their fill value into the file first. So what is not stored is not read there, and not stored in a copy either.
std::vector<Box> boxes_of(hid_t dataset, hid_t type, hid_t space) {
  const Hid creation(H5Dget_create_plist(dataset), &H5Pclose);
  if (H5Sget_simple_extent_npoints(space) <= 0 || hdf5_is_never_written(dataset)) {
    return {};
  }
  const auto shape = hdf5_shape(space);
  const std::vector<hsize_t> chunk = chunk_of(creation.get(), shape.size());
#if H5_VERSION_GE(1, 10, 5)
  if (!chunk.empty() && (hdf5_refers_to_its_file(type) || is_sparse(dataset, space, chunk))) {
    return stored_chunks(dataset, space, chunk);
  }
#endif
  return boxes_of_all(shape, chunk, H5Tget_size(type));
}

}  // namespace

bool hdf5_refers_to_its_file(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_VLEN:
    case H5T_REFERENCE:
      return true;
    case H5T_STRING:
      return H5Tis_variable_str(type) > 0;
    case H5T_ARRAY:
      return hdf5_refers_to_its_file(Hid(H5Tget_super(type), &H5Tclose).get());
    case H5T_COMPOUND:
      for (int i = 0; i < H5Tget_nmembers(type); ++i) {
        if (hdf5_refers_to_its_file(Hid(H5Tget_member_type(type, static_cast<unsigned>(i)), &H5Tclose).get())) {
          return true;
        }
      }
      return false;
    default:
      return false;
  }
}

bool hdf5_has_values_elsewhere(hid_t dataset) {
  const Hid creation(H5Dget_create_plist(dataset), &H5Pclose);
  return H5Pget_layout(creation.get()) == H5D_VIRTUAL || H5Pget_external_count(creation.get()) > 0;
}

bool hdf5_is_never_written(hid_t dataset) {
  const Hid creation(H5Dget_create_plist(dataset), &H5Pclose);
  return H5Pget_layout(creation.get()) == H5D_CONTIGUOUS && H5Pget_external_count(creation.get()) == 0 &&
         H5Dget_storage_size(dataset) == 0;
}

void hdf5_for_each_block(hid_t dataset, hid_t type, const std::string& doing, const Hdf5BlockOfValues& function) {
  const Hid space(H5Dget_space(dataset), &H5Sclose);
  for (const Box& box : boxes_of(dataset, type, space.get())) {
    if (!box.extents.empty()) {
      H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, box.start.data(), nullptr, box.extents.data(), nullptr);
    }
    const auto count = static_cast<hsize_t>(H5Sget_select_npoints(space.get()));
    const Hid memory(H5Screate_simple(1, &count, nullptr), &H5Sclose);
    std::vector<char> values(count * H5Tget_size(type));
    hdf5_check(H5Dread(dataset, type, memory.get(), space.get(), H5P_DEFAULT, values.data()), ErrorClass::kIo, doing);
    function(memory.get(), space.get(), values.data(), count);
    if (hdf5_refers_to_its_file(type)) {
      H5Dvlen_reclaim(type, memory.get(), H5P_DEFAULT, values.data());
    }
  }
}

bool hdf5_copy_dataset(hid_t from, hid_t to, const std::string& name, const std::string& doing) {
  const Hid link(H5Pcreate(H5P_LINK_CREATE), &H5Pclose);
  H5Pset_create_intermediate_group(link.get(), 1);
  if (is_copied_whole(from)) {
    const Hid options(H5Pcreate(H5P_OBJECT_COPY), &H5Pclose);
    H5Pset_copy_object(options.get(), H5O_COPY_WITHOUT_ATTR_FLAG);
    hdf5_check(H5Ocopy(from, ".", to, name.c_str(), options.get(), link.get()), ErrorClass::kIo, doing);
    return true;
  }
  const Hid stored(H5Dget_type(from), &H5Tclose);
  const Hid type(H5Tcopy(stored.get()), &H5Tclose);  // of the file's own types a transient copy
  const Hid creation = creation_like(from, type.get(), doing);
  static_cast<void>(hdf5_own(
      H5Dcreate2(to, name.c_str(), type.get(), space_like(from).get(), link.get(), creation.get(), H5P_DEFAULT),
      &H5Dclose, ErrorClass::kIo, doing));
  return false;
}

void hdf5_copy_values(hid_t from, hid_t to, const std::string& doing, const Hdf5ValueChange& change) {
  const Hid type(H5Dget_type(to), &H5Tclose);
  const size_t item = H5Tget_size(type.get());
  hdf5_for_each_block(from, type.get(), doing, [&](hid_t memory, hid_t selected, char* values, size_t number) {
    for (size_t i = 0; change && i < number; ++i) {
      change(type.get(), values + i * item);
    }
    hdf5_check(H5Dwrite(to, type.get(), memory, selected, H5P_DEFAULT, values), ErrorClass::kIo, doing);
  });
}

}  // namespace vit_hybrid::data
