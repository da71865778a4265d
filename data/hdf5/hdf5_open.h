// Opening and creating HDF5 files, on one rank or in parallel.
#pragma once

#include <cstdint>
#include <string>

#include "data/hdf5/hdf5_handle.h"

namespace vit_hybrid::data {

/// Size of the file; Error(kMissingInput) if it is not there.
int64_t existing_file_bytes(const std::string& path);

/// Opens for reading, on this rank alone or, with an access property list for MPI-IO, collectively. Error(kBadData) if
/// it is no HDF5 file or truncated.
Hid hdf5_open_file(const std::string& path, hid_t access = H5P_DEFAULT);

/// Error(kBadData) if it is not there (the hint names the datasets that are), or hdf5_check_storage() refuses it.
/// `chunk_cache_bytes` 0 is HDF5's default.
Hid hdf5_open_dataset(hid_t file, const std::string& path, const std::string& dataset, int64_t chunk_cache_bytes = 0);

/// Error(kBadData), naming `where`, if the dataset has external storage (raw files that it names) outside of the folder
/// of the file that it is in and those below it: a file that came from elsewhere must not make others part of the data.
/// The same, with the remedy, for filtered chunks of more than 512 MiB of values, each of which is in memory as a whole
/// when one of its values is read. hdf5_open_dataset() has asked it.
void hdf5_check_storage(hid_t dataset, const std::string& where);

/// Name of the file that the object lies in.
std::string hdf5_file_name(hid_t object);

/// Text of an attribute of a file or dataset (an array of texts: joined with commas); empty if it is not there or no
/// text. Errors as hdf5_texts()'s.
std::string hdf5_text_attribute(hid_t object, const std::string& name);

/// Removes what has the name of a file that is about to be made. On one rank.
void hdf5_make_way(const std::string& path);

/// Makes a file of a name that nothing has, after hdf5_make_way(); else Error(kCannotCreate). So a link of the name,
/// which somebody else may have put there to have its target emptied, is never followed: HDF5 and MPI-IO open by name,
/// and between a look at the name and an opening that truncates it could still become one. Collective where `access` is
/// MPI-IO's.
Hid hdf5_create_anew(const std::string& path, const Hid& creation, const Hid& access);

}  // namespace vit_hybrid::data
