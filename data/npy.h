// NumPy's .npy files: one array of float32 or float64 in C order, as NumPy's format documentation (NEP 1) has it.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace vit_hybrid::data {

/// The array of a .npy file (versions 1.0 to 3.0) as a host tensor of its shape, float32 or float64 as stored. Any
/// rank. Error(kMissingInput) without the file, Error(kBadData) if it is no such array, is truncated, in Fortran order,
/// of another type or of the other byte order.
at::Tensor read_npy(const std::string& path);

/// Writes a float32 or float64 host tensor under a temporary name and renames it: the file is complete or not there.
void write_npy(const std::string& path, const at::Tensor& values);

}  // namespace vit_hybrid::data
