// The seal of a file: a block at its head with hashes of itself and of all bytes that no other check covers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/reading/posix_file.h"
#include "src/base/partition.h"

namespace vit_hybrid::data {

/// Bytes to leave free at the head of a file of which at most `num_ranges` ranges will be sealed: a power of two and at
/// least 4096, as HDF5 wants its user blocks.
int64_t seal_block_bytes(int64_t num_ranges);

/// Writes the seal into the first `block_bytes` (seal_block_bytes()) of an otherwise complete file: a text with the
/// file's length and a hash of each range of bytes between the block and the end of the file that lies outside of
/// `others` (which do not overlap). Error(kIo).
void write_seal(const PosixFile& file, int64_t block_bytes, std::vector<Range> others);

/// The ranges of bytes that the seal of `path` answers for, the block itself first; nothing where the file does not
/// begin with a seal. Error(kMissingInput); Error(kBadData) with the range of bytes that is not as it was sealed.
std::optional<std::vector<Range>> check_seal(const std::string& path);

}  // namespace vit_hybrid::data
