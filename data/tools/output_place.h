// Folders that tools write into, and whether there is room in them. On the rank that calls.
#pragma once

#include <cstdint>
#include <string>

namespace vit_hybrid::data {

/// Makes the folder and those above it. Error(kCannotCreate).
void make_output_folder(const std::string& folder);

/// Error(kCannotCreate) if the file system of `folder` (which is there) has fewer than `bytes` bytes free.
void check_room(const std::string& folder, int64_t bytes);

}  // namespace vit_hybrid::data
