// statfs, and Lustre's layout from an extended attribute of the file.
#include "data/tools/file_system.h"

#include <sys/statfs.h>
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr uint32_t kPlainMagic1 = 0x0BD10BD0;
constexpr uint32_t kPlainMagic3 = 0x0BD30BD0;
constexpr uint32_t kCompositeMagic = 0x0BD60BD0;
constexpr const char* kLustreAttribute = "lustre.lov";
constexpr uint16_t kAllServers = 0xffff;

// Lustre's structs are packed and little-endian.
template <class T>
std::optional<T> word(std::span<const char> bytes, size_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) {
    return std::nullopt;
  }
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

std::optional<Striping> parse_plain(std::span<const char> bytes) {
  const auto magic = word<uint32_t>(bytes, 0);
  const auto stripe_bytes = word<uint32_t>(bytes, 24);  // after magic, pattern and two words of the object
  const auto num_servers = word<uint16_t>(bytes, 28);
  if (!magic || (*magic != kPlainMagic1 && *magic != kPlainMagic3) || !stripe_bytes || !num_servers) {
    return std::nullopt;
  }
  return Striping{*stripe_bytes, *num_servers == kAllServers ? 0 : *num_servers};
}

std::optional<Striping> parse_composite(std::span<const char> bytes) {
  constexpr size_t kHeader = 32;
  constexpr size_t kEntry = 48;
  constexpr size_t kOffsetInEntry = 24;
  const auto num_entries = word<uint16_t>(bytes, 14);
  std::optional<Striping> last;
  for (size_t i = 0; num_entries && i < *num_entries; ++i) {
    const auto offset = word<uint32_t>(bytes, kHeader + i * kEntry + kOffsetInEntry);
    if (!offset || *offset >= bytes.size()) {
      return std::nullopt;
    }
    const auto part = parse_plain(bytes.subspan(*offset));
    if (part && part->num_servers > 0) {
      last = part;
    }
  }
  return last;
}

// Of the file systems met on clusters; the numbers are those of linux/magic.h and of the file systems' own sources.
std::string kind_name(uint64_t magic) {
  constexpr std::array<std::pair<uint64_t, const char*>, 14> kKinds{{{0x0BD00BD0, "Lustre"},
                                                                     {0x47504653, "GPFS (Spectrum Scale)"},
                                                                     {0x19830326, "BeeGFS"},
                                                                     {0xEF53, "ext4"},
                                                                     {0x58465342, "XFS"},
                                                                     {0x9123683E, "Btrfs"},
                                                                     {0x2FC12FC1, "ZFS"},
                                                                     {0x01021994, "tmpfs (memory)"},
                                                                     {0x794C7630, "overlayfs"},
                                                                     {0x6969, "NFS"},
                                                                     {0x00C36400, "CephFS"},
                                                                     {0x65735546, "FUSE"},
                                                                     {0xFF534D42, "CIFS"},
                                                                     {0x01021997, "9p"}}};
  const auto* found = std::find_if(kKinds.begin(), kKinds.end(), [&](const auto& kind) { return kind.first == magic; });
  if (found != kKinds.end()) {
    return found->second;
  }
  char text[40];
  std::snprintf(text, sizeof text, "file system 0x%llx", static_cast<unsigned long long>(magic));
  return text;
}

std::optional<Striping> lustre_layout(const std::string& path) {
  std::vector<char> bytes(size_t{64} << 10);  // the largest value of an extended attribute
  const ssize_t size = ::getxattr(path.c_str(), kLustreAttribute, bytes.data(), bytes.size());
  return size <= 0 ? std::nullopt : parse_lustre_layout(std::span(bytes).first(static_cast<size_t>(size)));
}

}  // namespace

std::optional<Striping> parse_lustre_layout(std::span<const char> bytes) {
  const auto magic = word<uint32_t>(bytes, 0);
  return magic && *magic == kCompositeMagic ? parse_composite(bytes) : parse_plain(bytes);
}

std::string describe_file_system(const std::string& path) {
  struct statfs status {};
  if (::statfs(path.c_str(), &status) != 0) {
    throw Error(ErrorClass::kMissingInput, str("cannot look at ", path, ": ", std::generic_category().message(errno)),
                "check the path");
  }
  const std::string kind = kind_name(static_cast<uint32_t>(status.f_type));
  const auto striping = lustre_layout(path);
  if (striping) {
    return str(kind, ", ", striping->num_servers == 0 ? "all" : str(striping->num_servers),
               striping->num_servers == 1 ? " server, stripes of " : " servers, stripes of ", striping->stripe_bytes,
               " bytes");
  }
  return str(kind, ", blocks of ", static_cast<int64_t>(status.f_bsize), " bytes");
}

}  // namespace vit_hybrid::data
