// Regular files: opened without ever waiting, read whole within a bound; FIFOs, devices and folders are refused by
// name.
#pragma once

#include <cstdint>
#include <string>

namespace vit_hybrid {

/// What a path stands for at the end of its links.
enum class Links { kFollow, kRefuse };

/// Opens a regular file with these flags of open(2) and returns its descriptor, which the caller closes. Never waits:
/// what is no regular file is opened by nobody (a FIFO would block, a device might act) or closed again.
/// Error(kMissingInput) where it must be there and is not, Error(kCannotCreate) for flags with O_CREAT that fail,
/// Error(kBadData) where it is no regular file ("is a FIFO"), else Error(kIo).
int open_regular_file(const std::string& path, int flags, Links links = Links::kFollow);

/// The bytes of a regular file, of which there are `most_bytes` at most: a larger one is Error(kBadData). Other errors
/// as open_regular_file()'s.
std::string read_regular_file(const std::string& path, int64_t most_bytes, Links links = Links::kFollow);

}  // namespace vit_hybrid
