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

/// (name, version) of each library whose version is fixed when the program is built. What only the loaded library can
/// tell (MPI, NCCL) is told by its communicators.
std::vector<std::pair<std::string, std::string>> library_versions();

/// All of the above in a few lines, as `--version` prints it.
std::string version_text();

}  // namespace vit_hybrid
