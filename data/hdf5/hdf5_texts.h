// Texts of HDF5 attributes and datasets, and how long values of variable length are before they are read. For
// data/hdf5_* only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_handle.h"

namespace vit_hybrid::data {

/// All texts of an attribute or dataset, of fixed or variable length; none where it holds anything else or cannot be
/// read. Error(kBadData) for more than 16 MiB of them. `what` names it in messages: "attribute 'channels'".
std::vector<std::string> hdf5_texts(hid_t object, const std::string& what);

/// Error(kBadData), naming the file and `what`, where the values of an attribute or dataset take more than `most`
/// bytes. Of texts and lists of variable length those that they point to count, which are not read for that: a small
/// file may have one long text in many places. Other lists inside of compounds do not count.
void hdf5_require_few_bytes(hid_t object, int64_t most, const std::string& what);

}  // namespace vit_hybrid::data
