// The values of two HDF5 files, compared by what they mean: texts and lists by content, references by the names of what
// they refer to. For data/hdf5 only.
#pragma once

#include <string>

#include "data/hdf5/hdf5_open.h"

namespace vit_hybrid::data {

/// Throws Error(kIo): `what` of `where` is not read as it was written.
[[noreturn]] void hdf5_fail_comparison(const std::string& where, const std::string& what);

/// Error(kIo), naming `where`, if two datasets differ in shape, type, fill value or a value. Chunks whose filter this
/// HDF5 lacks are compared as they are stored.
void hdf5_require_same_dataset(hid_t from, hid_t to, const std::string& where);

/// Error(kIo), naming `where`, if `to` has not the attribute of `from` with its type, extent and values.
void hdf5_require_same_attribute(hid_t from, hid_t to, const std::string& name, const std::string& where);

}  // namespace vit_hybrid::data
