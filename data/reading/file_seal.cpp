// Seals: lines of text in a block of zeros, and XXH3 of what they speak of.
#include "data/reading/file_seal.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string_view>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

// The head is of fixed length: the name, the block's length and its hash, which is taken with this hash as zeros.
constexpr std::string_view kName = "vit_hybrid sealed file 1\n";
constexpr size_t kLengthAt = kName.size() + 6;  // behind "block "
constexpr size_t kLengthDigits = 12;
constexpr size_t kHashAt = kLengthAt + kLengthDigits + 6;  // behind " hash "
constexpr size_t kHashDigits = 16;
constexpr size_t kHeadBytes = kHashAt + kHashDigits + 1;
// "begin end hash\n" with numbers of 19 digits, and the line of the file's length.
constexpr int64_t kMostLineBytes = 2 * 20 + kHashDigits + 1;
constexpr int64_t kLeastBlock = 4096;
constexpr int64_t kMostBlock = int64_t{1} << 30;
constexpr int64_t kReadBytes = 1 << 20;

std::string hex(uint64_t value) {
  char text[kHashDigits + 1];
  std::snprintf(text, sizeof(text), "%016" PRIx64, value);
  return text;
}

uint64_t hash_of(const std::string& bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string block_hash(std::string block) {
  block.replace(kHashAt, kHashDigits, kHashDigits, '0');
  return hex(hash_of(block));
}

// Of bytes of the file, a buffer at a time.
std::string range_hash(const PosixFile& file, Range range) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), &XXH3_freeState);
  VH_ASSERT(state != nullptr && XXH3_64bits_reset(state.get()) == XXH_OK, "no state of a hash");
  std::vector<char> bytes(static_cast<size_t>(std::min(range.size(), kReadBytes)));
  for (int64_t at = range.begin; at < range.end;) {
    const int64_t count = std::min(range.end - at, kReadBytes);
    file.read(at, bytes.data(), count);
    XXH3_64bits_update(state.get(), bytes.data(), static_cast<size_t>(count));
    at += count;
  }
  return hex(XXH3_64bits_digest(state.get()));
}

// What lies between `begin` and `end` outside of `others`.
std::vector<Range> rest_of(Range whole, std::vector<Range> others) {
  std::sort(others.begin(), others.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> rest;
  int64_t at = whole.begin;
  for (const Range& other : others) {
    VH_ASSERT(other.begin >= at && other.end <= whole.end, str("bytes ", other.begin, " to ", other.end));
    if (other.begin > at) {
      rest.push_back({at, other.begin});
    }
    at = other.end;
  }
  if (at < whole.end) {
    rest.push_back({at, whole.end});
  }
  return rest;
}

[[noreturn]] void refuse_file(const std::string& path, const std::string& what) {
  throw Error(ErrorClass::kBadData, str(path, " is damaged: ", what), "use another one, or a copy of this one");
}

[[noreturn]] void refuse_range(const std::string& path, Range range) {
  refuse_file(path, str("the bytes from ", range.begin, " to ", range.end, " are not those that were written"));
}

// The whole block, or an empty text where the file does not begin with one.
std::string read_block(const PosixFile& file, int64_t file_bytes) {
  if (file_bytes < static_cast<int64_t>(kHeadBytes)) {
    return {};
  }
  std::array<char, kHeadBytes> head{};
  file.read(0, head.data(), kHeadBytes);
  if (std::string_view(head.data(), kName.size()) != kName) {
    return {};
  }
  int64_t bytes = 0;
  const char* const digits = head.data() + kLengthAt;
  const auto [end, error] = std::from_chars(digits, digits + kLengthDigits, bytes);
  if (error != std::errc() || end != digits + kLengthDigits || bytes < kLeastBlock || bytes > kMostBlock) {
    refuse_range(file.path(), {0, static_cast<int64_t>(kHeadBytes)});
  }
  if (bytes > file_bytes) {
    refuse_file(file.path(), str("it has ", file_bytes, " bytes, its head alone has ", bytes));
  }
  std::string block(static_cast<size_t>(bytes), '\0');
  file.read(0, block.data(), bytes);
  if (block.compare(kHashAt, kHashDigits, block_hash(block)) != 0) {
    refuse_range(file.path(), {0, bytes});
  }
  return block;
}

}  // namespace

int64_t seal_block_bytes(int64_t num_ranges) {
  const int64_t most = static_cast<int64_t>(kHeadBytes) + (num_ranges + 1) * kMostLineBytes;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(most, kLeastBlock))));
}

void write_seal(const PosixFile& file, int64_t block_bytes, std::vector<Range> others) {
  const int64_t file_bytes = file.size();
  char length[kLengthDigits + 1];
  std::snprintf(length, sizeof(length), "%0*" PRId64, static_cast<int>(kLengthDigits), block_bytes);
  std::string block = str(kName, "block ", length, " hash ", std::string(kHashDigits, '0'), "\n", file_bytes, "\n");
  for (const Range& range : rest_of({block_bytes, file_bytes}, std::move(others))) {
    block += str(range.begin, " ", range.end, " ", range_hash(file, range), "\n");
  }
  VH_ASSERT(static_cast<int64_t>(block.size()) <= block_bytes, str("a seal of ", block.size(), " bytes"));
  block.resize(static_cast<size_t>(block_bytes), '\0');
  block.replace(kHashAt, kHashDigits, block_hash(block));
  file.write(0, block.data(), block_bytes);
}

std::optional<std::vector<Range>> check_seal(const std::string& path) {
  const PosixFile file(path, PosixFile::Access::kRead);
  const int64_t file_bytes = file.size();
  const std::string block = read_block(file, file_bytes);
  if (block.empty()) {
    return std::nullopt;
  }
  std::istringstream lines(block.substr(kHeadBytes, block.find('\0', kHeadBytes) - kHeadBytes));
  int64_t sealed_bytes = 0;
  lines >> sealed_bytes;
  if (sealed_bytes != file_bytes) {
    refuse_file(path, str("it has ", file_bytes, " bytes, ", sealed_bytes, " were written"));
  }
  std::vector<Range> ranges = {{0, static_cast<int64_t>(block.size())}};
  std::string hash;
  for (Range range; lines >> range.begin >> range.end >> hash;) {
    if (range.begin < 0 || range.end > file_bytes || range.begin > range.end || range_hash(file, range) != hash) {
      refuse_range(path, range);
    }
    ranges.push_back(range);
  }
  return ranges;
}

}  // namespace vit_hybrid::data
