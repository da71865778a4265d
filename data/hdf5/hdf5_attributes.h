// Attributes written to HDF5 files and datasets. For data/hdf5_* only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_handle.h"
#include "data/hdf5/hdf5_writer.h"

namespace vit_hybrid::data {

/// Adds attributes to a file or dataset; `path` is the file's, for messages. HDF5 has no room for 64 KiB in one: of a
/// longer text or list each 60,000 bytes are one, `name`, `name.1`, `name.2`, ... Error(kCannotCreate), Error(kIo).
void hdf5_add_attributes(hid_t object, const Hdf5Attributes& attributes, const std::string& path);

/// The text of an attribute as hdf5_text_attribute() reads it, joined again where it was too long for one.
std::string hdf5_joined_text(hid_t object, const std::string& name);

/// The numbers of a list that hdf5_add_attributes() wrote, joined likewise. Nothing where its one dim is not a list's.
std::optional<std::vector<double>> hdf5_joined_numbers(hid_t object, const std::string& name);

/// Gives a text attribute that hdf5_add_attributes() made another text of the same length. Error(kIo).
void hdf5_replace_text(hid_t object, const std::string& name, const std::string& value, const std::string& path);

}  // namespace vit_hybrid::data
