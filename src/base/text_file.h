// read_text_file(): a small file of a user, whatever lies at its name.
#pragma once

#include <cstdint>
#include <string>

namespace vit_hybrid {

/// The content of a regular file of at most `most_bytes`. It waits for nobody: folders, FIFOs, sockets and devices are
/// refused as they are. Error(kMissingInput) for what is not there or no file, Error(kBadData) for what is longer,
/// Error(kIo) where reading fails. `hint`: what a user can do where there is no file.
std::string read_text_file(const std::string& path, int64_t most_bytes, const std::string& hint = {});

}  // namespace vit_hybrid
