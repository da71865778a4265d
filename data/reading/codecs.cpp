// Calls of the codecs' libraries, for bytes that nobody has checked; CRC-32C by instruction and by tables.
#include "data/reading/codecs.h"

#include <blosc.h>
#include <libdeflate.h>
#include <lz4.h>
#include <zstd.h>

#if defined(__SSE4_2__)
#include <nmmintrin.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr const char* kDeflateStream = "deflate stream";
constexpr const char* kZstdFrame = "zstd frame";
constexpr const char* kLz4Block = "LZ4 block";
constexpr const char* kBloscFrame = "Blosc frame";

[[noreturn]] void fail_decoding(const char* what, const std::string& why) {
  throw Error(ErrorClass::kBadData, str("corrupt ", what, " (", why, ")"),
              "the file is damaged: copy or make it again");
}

// Of a size that a header tells: before anything is written or allocated for it.
void check_told_size(const char* what, uint64_t size, int64_t space) {
  if (size > static_cast<uint64_t>(space)) {
    fail_decoding(what, str("it tells of ", size, " bytes, where at most ", space, " can be"));
  }
}

void check_nothing_follows(const char* what, std::span<const char> rest) {
  if (!rest.empty()) {
    fail_decoding(what, str(rest.size(), " bytes follow its end"));
  }
}

template <auto kFree>
struct FreeBy {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};

// The unsigned number in the next `count` bytes of LZ4's framings.
uint64_t take_number(std::span<const char>& stored, size_t count, std::endian order) {
  if (stored.size() < count) {
    fail_decoding(kLz4Block, "it ends early");
  }
  uint64_t number = 0;
  for (size_t i = 0; i < count; ++i) {
    const char byte = stored[order == std::endian::big ? i : count - 1 - i];
    number = number << 8 | static_cast<unsigned char>(byte);
  }
  stored = stored.subspan(count);
  return number;
}

void decompress_lz4_block(std::span<const char> block, char* to, uint64_t count) {
  const bool has_lz4_size = std::max<uint64_t>(block.size(), count) <= INT_MAX;
  const int written =
      has_lz4_size ? LZ4_decompress_safe(block.data(), to, static_cast<int>(block.size()), static_cast<int>(count))
                   : -1;
  if (written < 0 || static_cast<uint64_t>(written) != count) {
    fail_decoding(kLz4Block, str("its ", block.size(), " bytes are not the ", count, " that it should hold"));
  }
}

// BloscLZ adds up a match's length, to which each byte 255 brings 255, in an int that overflows (c-blosc's issue 405),
// and then writes anywhere. No encoder writes so many: they would be a match longer than a block can be.
void check_match_lengths(std::span<const char> frame) {
  constexpr int kTooMany = INT_MAX / 256;
  const auto flags = static_cast<unsigned char>(frame[2]);
  const bool is_blosclz = flags >> 5 == BLOSC_BLOSCLZ_FORMAT && (flags & BLOSC_MEMCPYED) == 0;
  if (is_blosclz && std::search_n(frame.begin(), frame.end(), kTooMany, '\xff') != frame.end()) {
    fail_decoding(kBloscFrame, "a match is longer than a block can be");
  }
}

// The size that a frame tells of, which is not more than `space`; only the header is looked at.
int64_t told_by_blosc(const void* frame, size_t stored_bytes, int64_t space) {
  size_t count = 0;
  if (blosc_cbuffer_validate(frame, stored_bytes, &count) < 0) {
    fail_decoding(kBloscFrame, str("its header is not that of ", stored_bytes, " bytes"));
  }
  check_told_size(kBloscFrame, count, space);
  return static_cast<int64_t>(count);
}

// To exactly `count` bytes, which are all or some of the `told` ones.
void decompress_blosc_frame(std::span<const char> frame, char* to, int64_t count, int64_t told) {
  check_match_lengths(frame);
  // blosc_decompress() would share one context, and its lock, among all threads.
  const int written = blosc_decompress_ctx(frame.data(), to, static_cast<size_t>(count), /*numinternalthreads=*/1);
  if (written < 0 || written != count) {
    fail_decoding(kBloscFrame, str("its blocks are not the ", told, " bytes that it tells of"));
  }
}

// As Blosc 1 stores it (README_CHUNK_FORMAT.rst of c-blosc), little-endian. Behind it lies, unless the values do as
// they are, the place of each block in the frame (32 bits).
struct BloscHeader {
  uint8_t version, codec_version, flags, item_bytes;
  int32_t num_bytes, block_bytes, stored_bytes;
};
static_assert(sizeof(BloscHeader) == 16);
constexpr uint8_t kBloscIsNotSplit = 0x10;

// Blocks that lie together in a window are read together; smaller blocks than the least would cost more by their number
// than the cache saves.
constexpr int64_t kBloscWindow = int64_t{1} << 18;
constexpr int32_t kLeastBloscBlock = 1 << 14;

struct BloscBlock {
  int64_t begin;   // in the frame
  int64_t number;  // in the values
};

// In the order in which they are stored, which is another one where several threads wrote them. None where the frame
// is not to be taken apart.
std::vector<BloscBlock> blosc_blocks(const ReadStored& read, const BloscHeader& header) {
  if (std::endian::native != std::endian::little || (header.flags & BLOSC_MEMCPYED) != 0 ||
      header.block_bytes < kLeastBloscBlock || header.block_bytes % 8 != 0) {
    return {};
  }
  const int64_t count = (int64_t{header.num_bytes} + header.block_bytes - 1) / header.block_bytes;
  const auto table_end = static_cast<int64_t>(sizeof(header)) + count * static_cast<int64_t>(sizeof(int32_t));
  if (table_end > header.stored_bytes) {
    return {};
  }
  std::vector<int32_t> starts(static_cast<size_t>(count));
  read(sizeof(header), reinterpret_cast<char*>(starts.data()), table_end - static_cast<int64_t>(sizeof(header)));
  std::vector<BloscBlock> blocks;
  for (const int32_t start : starts) {
    if (start < table_end || start > header.stored_bytes) {
      return {};
    }
    blocks.push_back({start, static_cast<int64_t>(blocks.size())});
  }
  std::sort(blocks.begin(), blocks.end(), [](const BloscBlock& a, const BloscBlock& b) {
    return std::pair(a.begin, a.number) < std::pair(b.begin, b.number);
  });
  return blocks;
}

// Table k has the remainder of each byte that k more bytes follow: eight look-ups advance by eight bytes ("slicing").
constexpr auto kCrcTables = [] {
  constexpr uint32_t kReflectedPolynomial = 0x82f63b78;
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = remainder >> 1 ^ (remainder % 2 != 0 ? kReflectedPolynomial : 0);
    }
    tables[0][byte] = remainder;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = before >> 8 ^ tables[0][before & 0xff];
    }
  }
  return tables;
}();

constexpr uint32_t crc_by_tables(uint32_t crc, std::span<const char> bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])); };
  size_t done = 0;
  for (; bytes.size() - done >= 8; done += 8) {
    uint64_t word = crc;
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) {
      word ^= byte(done + i) << (8 * i);
    }
    crc = 0;
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) {
      crc ^= kCrcTables[7 - i][word >> (8 * i) & 0xff];
    }
  }
  for (; done < bytes.size(); ++done) {
    crc = crc >> 8 ^ kCrcTables[0][(crc ^ byte(done)) & 0xff];
  }
  return crc;
}

// Checked here, as crc32c() leaves only its last bytes to the tables where there is an instruction.
static_assert(~crc_by_tables(~0u, std::string_view("123456789")) == 0xe3069283);

}  // namespace

int64_t inflate(std::span<const char> stored, char* to, int64_t space) {
  thread_local const std::unique_ptr<libdeflate_decompressor, FreeBy<libdeflate_free_decompressor>> decompressor(
      libdeflate_alloc_decompressor());
  if (!decompressor) {
    throw Error(ErrorClass::kInternal, "libdeflate cannot start");
  }
  const bool is_gzip = stored.size() >= 2 && stored[0] == '\x1f' && stored[1] == '\x8b';
  auto* const decompress = is_gzip ? libdeflate_gzip_decompress_ex : libdeflate_zlib_decompress_ex;
  int64_t count = 0;
  do {
    size_t num_read = 0;
    size_t num_written = 0;
    const libdeflate_result result = decompress(decompressor.get(), stored.data(), stored.size(), to + count,
                                                static_cast<size_t>(space - count), &num_read, &num_written);
    if (result == LIBDEFLATE_INSUFFICIENT_SPACE) {
      fail_decoding(kDeflateStream, str("it holds more than ", space, " bytes"));
    }
    if (result != LIBDEFLATE_SUCCESS) {
      fail_decoding(kDeflateStream, "it is not valid or ends early");
    }
    stored = stored.subspan(num_read);
    count += static_cast<int64_t>(num_written);
  } while (is_gzip && !stored.empty());
  check_nothing_follows(kDeflateStream, stored);
  return count;
}

int64_t decompress_zstd(std::span<const char> stored, char* to, int64_t space) {
  thread_local const std::unique_ptr<ZSTD_DCtx, FreeBy<ZSTD_freeDCtx>> context(ZSTD_createDCtx());
  if (!context) {
    throw Error(ErrorClass::kInternal, "zstd cannot start");
  }
  if (stored.empty()) {  // no frame at all, for zstd
    fail_decoding(kZstdFrame, "it is empty");
  }
  const size_t count = ZSTD_decompressDCtx(context.get(), to, static_cast<size_t>(space), stored.data(), stored.size());
  if (ZSTD_isError(count) != 0) {
    fail_decoding(kZstdFrame, ZSTD_getErrorName(count));
  }
  return static_cast<int64_t>(count);
}

int64_t decompress_lz4(std::span<const char> stored, char* to, int64_t space) {
  const uint64_t count = take_number(stored, 4, std::endian::little);
  check_told_size(kLz4Block, count, space);
  decompress_lz4_block(stored, to, count);
  return static_cast<int64_t>(count);
}

int64_t decompress_lz4_hdf5(std::span<const char> stored, char* to, int64_t space) {
  const uint64_t count = take_number(stored, 8, std::endian::big);
  const uint64_t block_bytes = take_number(stored, 4, std::endian::big);
  check_told_size(kLz4Block, count, space);
  for (uint64_t done = 0; done < count;) {  // ends with `stored`, even where blocks are empty
    const uint64_t num_decoded = std::min(block_bytes, count - done);
    const uint64_t num_stored = take_number(stored, 4, std::endian::big);
    if (num_stored > stored.size()) {
      fail_decoding(kLz4Block, "it ends early");
    }
    const auto block = stored.first(num_stored);
    if (num_stored == num_decoded) {
      std::copy(block.begin(), block.end(), to + done);
    } else {
      decompress_lz4_block(block, to + done, num_decoded);
    }
    stored = stored.subspan(num_stored);
    done += num_decoded;
  }
  check_nothing_follows(kLz4Block, stored);
  return static_cast<int64_t>(count);
}

int64_t decompress_blosc(std::span<const char> stored, char* to, int64_t space) {
  const int64_t count = told_by_blosc(stored.data(), stored.size(), space);
  decompress_blosc_frame(stored, to, count, count);
  return count;
}

int64_t decompress_blosc(const ReadStored& read, std::span<char> stored, char* to, int64_t space,
                         const Decoded& decoded) {
  const auto stored_bytes = static_cast<int64_t>(stored.size());
  BloscHeader header{};
  read(0, reinterpret_cast<char*>(&header), std::min<int64_t>(stored_bytes, sizeof(header)));
  const int64_t count = told_by_blosc(&header, stored.size(), space);
  const auto blocks = blosc_blocks(read, header);
  if (blocks.size() < 2) {
    read(0, stored.data(), stored_bytes);
    decompress_blosc_frame(stored, to, count, count);
    if (decoded) {
      decoded(0, count);
    }
    return count;
  }
  // Each block becomes a frame of its own, whose header overwrites the end of the block before it.
  constexpr int64_t kHead = sizeof(BloscHeader) + sizeof(int32_t);
  char* const first = stored.data() + kHead;
  int64_t window_begin = 0, window_end = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto end_of = [&](size_t block) {
      return block + 1 < blocks.size() ? blocks[block + 1].begin : stored_bytes;
    };
    if (blocks[i].begin >= window_end) {
      window_begin = blocks[i].begin;
      window_end = end_of(i);
      for (size_t next = i + 1; next < blocks.size() && end_of(next) - window_begin <= kBloscWindow; ++next) {
        window_end = end_of(next);
      }
      read(window_begin, first, window_end - window_begin);
    }
    const int64_t at = blocks[i].number * int64_t{header.block_bytes};
    BloscHeader own = header;
    own.num_bytes = std::min(header.block_bytes, static_cast<int32_t>(count - at));
    if (own.num_bytes < header.block_bytes) {  // the last block is never split
      own.block_bytes = own.num_bytes;
      own.flags |= kBloscIsNotSplit;
    }
    own.stored_bytes = static_cast<int32_t>(kHead + end_of(i) - blocks[i].begin);
    char* const frame = first + blocks[i].begin - window_begin - kHead;
    std::memcpy(frame, &own, sizeof(own));
    const auto start = static_cast<int32_t>(kHead);
    std::memcpy(frame + sizeof(own), &start, sizeof(start));
    decompress_blosc_frame({frame, static_cast<size_t>(own.stored_bytes)}, to + at, own.num_bytes, count);
    if (decoded) {
      decoded(at, own.num_bytes);
    }
  }
  return count;
}

uint32_t crc32c(std::span<const char> bytes) {
  uint32_t crc = ~0u;
#if defined(__SSE4_2__)  // in the baseline of x86 (src/cmake/settings.cmake)
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof(word));
    crc = static_cast<uint32_t>(_mm_crc32_u64(crc, word));
  }
#endif
  return ~crc_by_tables(crc, bytes);
}

}  // namespace vit_hybrid::data
