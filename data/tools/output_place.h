// Folders that tools write into, and whether there is room in them. On the rank that calls.
#pragma once

#include <cstdint>
#include <string>

namespace vit_hybrid::data {

/// Makes the folder and those above it. Error(kCannotCreate).
void make_output_folder(const std::string& folder);

/// The folder itself or, where it is still to be made, the nearest one above it that is there; of "" the current one.
std::string existing_part(const std::string& folder);

/// Error(kCannotCreate) if the file system of existing_part(folder) has fewer than `bytes` bytes free.
void check_room(const std::string& folder, int64_t bytes);

}  // namespace vit_hybrid::data
