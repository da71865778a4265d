// New HDF5 files and contiguous datasets in them. For data/hdf5_* only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_handle.h"
#include "data/hdf5/hdf5_writer.h"

namespace vit_hybrid::data {

/// What a file leaves free at its head, and what HDF5 takes at once for structures of its own; 0: as HDF5 does it.
struct Hdf5Room {
  int64_t block_bytes = 0;
  int64_t metadata_bytes = 0;
};
/// Of a file that gets a seal: room for it, and HDF5's structures together, for few ranges to check.
Hdf5Room hdf5_room_for_seal(const std::vector<Hdf5DatasetSpec>& datasets, const Hdf5Attributes& attributes);

/// Removes what has the name of a file that is about to be made. On one rank.
void hdf5_make_way(const std::string& path);

/// Makes a file of a name that nothing has, after hdf5_make_way(); else Error(kCannotCreate). So a link of the name,
/// which somebody else may have put there to have its target emptied, is never followed: HDF5 and MPI-IO open by name,
/// and between a look at the name and an opening that truncates it could still become one. Collective where `access` is
/// MPI-IO's.
Hid hdf5_create_anew(const std::string& path, const Hid& creation, const Hid& access);

/// The same with room for a seal.
Hid hdf5_create_file(const std::string& path, const Hid& access, const Hdf5Room& room);

/// Creates a dataset with its attributes and with storage that is allocated and not filled. Error(kCannotCreate).
Hid hdf5_create_dataset(hid_t file, const Hdf5DatasetSpec& spec, const std::string& path);

}  // namespace vit_hybrid::data
