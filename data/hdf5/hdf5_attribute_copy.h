// Attributes of any type, carried from an object of one HDF5 file to one of another. For data/hdf5_* only.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_handle.h"

namespace vit_hybrid::data {

/// In ascending order. `doing` is for Error(kIo): "cannot <doing>: ...".
std::vector<std::string> hdf5_attribute_names(hid_t object, const std::string& doing);

/// Sees every value on its way, with its type in memory; may change what it refers to.
using Hdf5ValueChange = std::function<void(hid_t type, char* value)>;

/// Gives `to`, which has no attribute `name` yet, the one of `from`: its type (of a committed type a copy), extent and
/// values. References keep their bytes, which mean nothing in another file, unless `change` makes them anew. Where the
/// one of `from` cannot be read, `to` is left alone. Error(kIo).
void hdf5_copy_attribute(hid_t from, hid_t to, const std::string& name, const std::string& doing,
                         const Hdf5ValueChange& change = {});

}  // namespace vit_hybrid::data
