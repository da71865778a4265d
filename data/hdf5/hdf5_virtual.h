// Virtual datasets: whether all that they are made of is there. For data/hdf5 only.
#pragma once

#include <string>

#include "data/hdf5/hdf5_layout.h"
#include "data/hdf5/hdf5_open.h"

namespace vit_hybrid::data {

/// What of the values of a virtual dataset was never written, as ArrayLayout::unwritten: parts that it maps no file to,
/// and what the files lack. `path` is the file that it is in, `where` names it. Error(kMissingInput) where a file is
/// not there; what inspect_dataset() and require_filters() throw of a file; Error(kBadData) where it is made of itself,
/// or, with the virtual datasets that it is made of, of more levels or parts than there is memory for. Of parts by a
/// pattern of names, or without an end, what is there is taken to be all.
std::string hdf5_unwritten_parts(const std::string& path, hid_t dataset, const std::string& where,
                                 const ArrayLayout& layout);

/// For a dataset that is read beside those that inspect_dataset() was asked for, such as a scale: where it is virtual,
/// throws what hdf5_unwritten_parts() does, and Error(kBadData) where it returns something.
void hdf5_require_parts(hid_t dataset, const std::string& where);

}  // namespace vit_hybrid::data
