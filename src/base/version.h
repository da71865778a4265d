// What this program was built from: its version, git commit, compiler, build type and libraries.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace vit_hybrid {

/// The project's version, for instance "0.1.0".
std::string project_version();

/// The full git commit of the sources, or "unknown" where they were not built from a git checkout.
std::string git_commit();

/// Whether the sources had changes that git_commit() does not hold (untracked files count).
bool git_dirty();

/// Name and version of the C++ compiler, for instance "GNU 12.2.0".
std::string compiler();

/// CMake's build type, with the sanitizers named if there are any: "Release", "Debug with sanitizers".
std::string build_type();

/// (name, version) of each library whose version is fixed when the program is built, LibTorch first. What only the
/// loaded library can tell is told by cuda_library_versions() and (MPI, NCCL) by the communicators.
std::vector<std::pair<std::string, std::string>> library_versions();

/// (name, version) of CUDA and cuDNN as they are loaded; empty in a program without CUDA. Needs no GPU.
std::vector<std::pair<std::string, std::string>> cuda_library_versions();

/// Version, commit, compiler and library_versions() in a few lines.
std::string version_text();

}  // namespace vit_hybrid
