// Inspection of a dataset's layout through HDF5.
#include "data/hdf5_layout.h"

#include <c10/core/ScalarType.h>

#include "data/box_runs.h"
#include "data/hdf5_handle.h"
#include "data/hdf5_open.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

using Storage = Hdf5Layout::Storage;

std::string filter_names(hid_t creation, int num_filters) {
  std::vector<std::string> names;
  for (int i = 0; i < num_filters; ++i) {
    char name[64] = {};
    unsigned flags = 0;
    size_t num_values = 0;
    H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &num_values, nullptr, sizeof(name), name, nullptr);
    names.emplace_back(name);
  }
  return join(names);
}

// What keeps the bytes of the file from being the values in memory, or nothing.
std::string reason_opaque(hid_t file, hid_t creation, hid_t type, const StoredType& stored) {
  if (!stored.is_native) {
    return str("values stored as ", hdf5_type_name(type), " that must be converted");
  }
  const int num_filters = H5Pget_nfilters(creation);
  if (num_filters != 0) {
    return str("filter ", filter_names(creation, num_filters));
  }
  if (H5Pget_external_count(creation) > 0) {
    return "external storage";
  }
  const Hid file_creation(H5Fget_create_plist(file), &H5Pclose);
  hsize_t user_block = 0;
  H5Pget_userblock(file_creation.get(), &user_block);
  return user_block == 0 ? "" : "a user block before the HDF5 file";
}

// Offsets of all chunks in row-major order of their grid; empty if one is not stored (its values are fill values).
std::vector<int64_t> find_chunks(hid_t dataset, const Hdf5Layout& layout) {
#if H5_VERSION_GE(1, 10, 5)
  const size_t rank = layout.shape.size();
  std::vector<int64_t> offsets;
  std::vector<hsize_t> corner(rank, 0);
  const auto advance = [&] {  // to the next chunk; false after the last
    for (size_t d = rank; d-- > 0;) {
      corner[d] += static_cast<hsize_t>(layout.chunk[d]);
      if (corner[d] < static_cast<hsize_t>(layout.shape[d])) {
        return true;
      }
      corner[d] = 0;
    }
    return false;
  };
  if (num_elements(layout.shape) == 0) {
    return offsets;
  }
  do {
    unsigned mask = 0;
    haddr_t address = HADDR_UNDEF;
    hsize_t bytes = 0;
    const herr_t status = H5Dget_chunk_info_by_coord(dataset, corner.data(), &mask, &address, &bytes);
    if (status < 0 || address == HADDR_UNDEF) {
      H5Eclear2(H5E_DEFAULT);
      return {};
    }
    offsets.push_back(static_cast<int64_t>(address));
  } while (advance());
  return offsets;
#else
  static_cast<void>(dataset);
  static_cast<void>(layout);
  return {};  // HDF5 before 1.10.5 does not tell where chunks are
#endif
}

void locate_contiguous(hid_t dataset, const std::string& where, Hdf5Layout& layout) {
  const haddr_t offset = H5Dget_offset(dataset);
  if (offset == HADDR_UNDEF) {
    H5Eclear2(H5E_DEFAULT);
    layout.opaque_because = "storage that was never allocated";
    return;
  }
  layout.storage = Storage::kContiguous;
  layout.offset = static_cast<int64_t>(offset);
  const int64_t end = layout.offset + layout.num_rows() * layout.row_bytes();
  if (end > layout.file_bytes) {
    throw Error(ErrorClass::kBadData,
                str(where, " ends at byte ", end, ", but the file has ", layout.file_bytes, " bytes"),
                "the file is truncated: copy or make it again");
  }
}

void locate_chunks(hid_t dataset, hid_t creation, Hdf5Layout& layout) {
  std::vector<hsize_t> extents(layout.shape.size());
  H5Pget_chunk(creation, static_cast<int>(extents.size()), extents.data());
  layout.chunk.assign(extents.begin(), extents.end());
  if (!layout.opaque_because.empty()) {
    return;
  }
  layout.chunk_offsets = find_chunks(dataset, layout);
  if (layout.chunk_offsets.empty()) {
    layout.opaque_because = "chunks that are not all stored, or whose place this HDF5 does not tell";
  } else {
    layout.storage = Storage::kChunked;
  }
}

void locate(hid_t file, hid_t dataset, const std::string& where, hid_t type, const StoredType& stored,
            Hdf5Layout& layout) {
  const Hid creation(H5Dget_create_plist(dataset), &H5Pclose);
  layout.opaque_because = reason_opaque(file, creation.get(), type, stored);
  const H5D_layout_t kind = H5Pget_layout(creation.get());
  if (kind == H5D_CHUNKED) {
    locate_chunks(dataset, creation.get(), layout);
  } else if (kind != H5D_CONTIGUOUS && layout.opaque_because.empty()) {
    layout.opaque_because = kind == H5D_COMPACT ? "compact storage" : "virtual storage";
  } else if (layout.opaque_because.empty()) {
    locate_contiguous(dataset, where, layout);
  }
}

}  // namespace

int64_t Hdf5Layout::row_bytes() const {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(type));
  for (size_t d = 1; d < shape.size(); ++d) {
    bytes *= shape[d];
  }
  return bytes;
}

Hdf5Layout inspect_dataset(const std::string& path, const std::string& dataset, const std::string& attribute) {
  Hdf5Layout layout;
  layout.file_bytes = existing_file_bytes(path);
  const Hid file = hdf5_open_file(path);
  const Hid opened = hdf5_open_dataset(file.get(), path, dataset);
  const Hid type(H5Dget_type(opened.get()), &H5Tclose);
  const Hid space(H5Dget_space(opened.get()), &H5Sclose);
  const std::string where = str(path, ": dataset '", dataset, "'");
  const auto stored = hdf5_stored_type(type.get());
  if (!stored) {
    throw Error(ErrorClass::kBadData, str(where, " holds values of type ", hdf5_type_name(type.get())),
                "a dataset of numbers is needed");
  }
  layout.type = stored->type;
  layout.shape = hdf5_shape(space.get());
  locate(file.get(), opened.get(), where, type.get(), *stored, layout);
  if (!attribute.empty()) {
    layout.attribute = hdf5_text_attribute(opened.get(), attribute);
    if (layout.attribute.empty()) {
      layout.attribute = hdf5_text_attribute(file.get(), attribute);
    }
  }
  return layout;
}

}  // namespace vit_hybrid::data
