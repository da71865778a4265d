// What repacking makes of a list of files: names, datasets and types.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "data/tools/repack_files.h"

namespace vit_hybrid::data {

/// The file that `input` becomes.
std::string repacked_path(const RepackOptions& options, const std::string& input);

/// On this rank alone. Error(kUsage) if a file would be rewritten in place or two would get one name,
/// Error(kCannotCreate) if one is there and may not be replaced.
void check_repacked_paths(const RepackOptions& options, const std::vector<std::string>& inputs);

/// The dataset that is asked for, or the one that training reads. On this rank alone. Error(kUsage) if the file has
/// none of the usual names.
std::string repacked_dataset(const RepackOptions& options, const std::string& path);

at::ScalarType repacked_type(RepackType wanted, at::ScalarType old);

}  // namespace vit_hybrid::data
