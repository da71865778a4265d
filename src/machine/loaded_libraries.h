// loaded_libraries(): versions that only the running program can tell.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace vit_hybrid::train {

/// (name, version) of MPI, and in a program with CUDA of CUDA, cuDNN and NCCL. Needs neither MPI_Init nor a GPU.
std::vector<std::pair<std::string, std::string>> loaded_libraries();

/// What `--version` prints: version_text(), whether the program has CUDA, and loaded_libraries().
std::string program_text();

}  // namespace vit_hybrid::train
