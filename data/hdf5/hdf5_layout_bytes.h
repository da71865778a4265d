// Layouts of datasets as one sequence of bytes and back, to be sent to other ranks of the same program.
#pragma once

#include <string>
#include <vector>

#include "data/hdf5/hdf5_layout.h"

namespace vit_hybrid::data {

std::string pack_layouts(const std::vector<Hdf5Layout>& layouts);
/// Error(kInternal) if the bytes are too few.
std::vector<Hdf5Layout> unpack_layouts(const std::string& bytes);

}  // namespace vit_hybrid::data
