// NumPy's .npy files: one array of float32 or float64 in C order, as NumPy's format documentation (NEP 1) has it.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace vit_hybrid::data {

/// The array of a .npy file (versions 1.0 to 3.0) as a host tensor of its shape, float32 or float64 as stored. Any
/// rank. Error(kMissingInput) without the file, Error(kBadData) if it is no such array, is truncated, in Fortran order,
/// of another type or of the other byte order.
at::Tensor read_npy(const std::string& path);

/// Writes float32 or float64 host tensors into files that belong together, each under a temporary name and then
/// renamed: a file is complete or not there. Old ones go before the first new one has its name: whenever the program is
/// killed, what is there is not of two data sets, and a missing file is refused by whoever reads them. Where one cannot
/// be written, the old ones stay. `beside`: paths of other files of the old data set, which go with them.
using NpyFiles = std::vector<std::pair<std::string, at::Tensor>>;
void replace_npy(const NpyFiles& files, const std::vector<std::string>& beside = {});

}  // namespace vit_hybrid::data
