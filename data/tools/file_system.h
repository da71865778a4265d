// What the file system tells of a file: its kind, block size, and over how many servers Lustre stripes it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace vit_hybrid::data {

/// How a file is spread over a parallel file system's servers.
struct Striping {
  int64_t stripe_bytes = 0;
  int64_t num_servers = 0;
  bool operator==(const Striping&) const = default;
};

/// The extended attribute "lustre.lov" (struct lov_user_md_v1 and _v3, or lov_comp_md_v1, of which the last component
/// that has servers counts, as it holds most of a large file). Nothing for other or damaged bytes.
std::optional<Striping> parse_lustre_layout(std::span<const char> bytes);

/// One line: "ext4, blocks of 4096 bytes", "Lustre, 8 servers, stripes of 1048576 bytes". Error(kMissingInput) without
/// the file.
std::string describe_file_system(const std::string& path);

}  // namespace vit_hybrid::data
