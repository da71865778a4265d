// Attributes written to HDF5 files and datasets. For data/hdf5_* only.
#pragma once

#include <string>

#include "data/hdf5_handle.h"
#include "data/hdf5_writer.h"

namespace vit_hybrid::data {

/// Adds attributes to a file or dataset; `path` is the file's, for messages. Error(kCannotCreate), Error(kIo).
void hdf5_add_attributes(hid_t object, const Hdf5Attributes& attributes, const std::string& path);

/// Gives a text attribute that hdf5_add_attributes() made another text of the same length. Error(kIo).
void hdf5_replace_text(hid_t object, const std::string& name, const std::string& value, const std::string& path);

}  // namespace vit_hybrid::data
