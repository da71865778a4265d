// Codecs: bytes that numcodecs and the zstd program made, bytes cut, changed and too long, and CRC-32C by its
// definition.
#include <doctest/doctest.h>
#include <lz4.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "data/reading/codecs.h"
#include "src/base/error.h"
#include "tests/support/contains.h"

namespace vit_hybrid::data {
namespace {

using vit_hybrid::testing::contains;

using Text = std::string;

constexpr int64_t kNumBytes = 192;

// numpy: (np.arange(48) // 3).astype('<f4').tobytes()
Text plain_bytes() {
  Text bytes(kNumBytes, '\0');
  for (int i = 0; i < 48; ++i) {
    const auto value = static_cast<float>(i / 3);
    std::memcpy(bytes.data() + 4 * i, &value, sizeof(value));
  }
  return bytes;
}

Text from_hex(std::string_view digits) {
  Text bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(Text(digits.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

Text big_endian(uint64_t number, int count) {
  Text bytes;
  for (int i = count; i-- > 0;) {
    bytes.push_back(static_cast<char>(number >> (8 * i) & 0xff));
  }
  return bytes;
}

// The framing of HDF5's filter 32004; the second block is stored as it is.
Text lz4_hdf5_frame(const Text& bytes, size_t block_bytes) {
  Text frame = big_endian(bytes.size(), 8) + big_endian(block_bytes, 4);
  for (size_t begin = 0; begin < bytes.size(); begin += block_bytes) {
    Text block = bytes.substr(begin, block_bytes);
    if (begin != block_bytes) {
      Text compressed(static_cast<size_t>(LZ4_compressBound(static_cast<int>(block.size()))), '\0');
      compressed.resize(static_cast<size_t>(LZ4_compress_default(
          block.data(), compressed.data(), static_cast<int>(block.size()), static_cast<int>(compressed.size()))));
      block = compressed;
    }
    frame += big_endian(block.size(), 4) + block;
  }
  return frame;
}

using Decoder = int64_t (*)(std::span<const char>, char*, int64_t);

struct Example {
  Text name;
  const char* error;
  Decoder decode;
  Text stored;
  size_t header_begin;  // bytes of which none can be another
  size_t header_end;
};

// Where no other program is named: numcodecs 0.16.6.
std::vector<Example> examples() {
  const Text zlib = from_hex(  // Zlib(9)
      "78da636040060df608cce080c00e48b801092f40c20790f00324cce088c002485801091b206107241c8084139070011c0300c7681b16");
  const Text gzip = from_hex(  // GZip(9)
      "1f8b0800c2230a6b02ff636040060df608cce080c00e48b801092f40c20790f00324cce088c002485801091b206107241c8084139070011c"
      "0300c16c1490c0000000");
  const Text zstd = from_hex(  // Zstd(3)
      "28b52ffd20c0ad0100a00000803f00404080a0c0e00041102030405060701000a00830070c03468039601830026c04860123c01c300c1801"
      "36de6d980358");
  const Text zstd_stream = from_hex(  // zstd -c: a checksum, and no size of the content
      "28b52ffd0458ad0100a00000803f00404080a0c0e00041102030405060701000a00830070c03468039601830026c04860123c01c300c1801"
      "36de6d9803580dbf1f26");
  const Text lz4 = from_hex(  // LZ4()
      "c00000001900010026803f04002600400400174004001780040017a0040017c0040017e00400260041040017100400172004001730040017"
      "4004001750040017600400a070410000704100007041");
  const Text blosc_lz4 = from_hex(  // Blosc('lz4', 5, Blosc.SHUFFLE)
      "02013104c0000000c000000063000000140000004b0000001f0001004ff929808080000000404040808080a0a0a0c0c0c0e0e0e000000010"
      "10102020203030304040405050506060607070700000003f3f3f404040404005001e410100504141414141");
  const Text blosc_zstd = from_hex(  // Blosc('zstd', 5, Blosc.BITSHUFFLE)
      "02019404c0000000c000000054000000140000003c00000028b52ffd20c09d010024020000388ee30080e3c00ffc000efc00f0ff38f0ff00"
      "00ffffff38c0ff0000000000000500b800536a200a0b9c56b0296803");
  const char* const deflate = "corrupt deflate stream";
  return {{"zlib", deflate, inflate, zlib, 0, 2},
          {"gzip", deflate, inflate, gzip, 0, 3},
          {"zstd", "corrupt zstd frame", decompress_zstd, zstd, 0, 4},
          {"zstd, a stream", "corrupt zstd frame", decompress_zstd, zstd_stream, 0, 4},
          {"LZ4", "corrupt LZ4 block", decompress_lz4, lz4, 0, 4},
          {"LZ4 of HDF5", "corrupt LZ4 block", decompress_lz4_hdf5, lz4_hdf5_frame(plain_bytes(), 80), 0, 16},
          {"Blosc, lz4", "corrupt Blosc frame", decompress_blosc, blosc_lz4, 4, 16},
          {"Blosc, zstd", "corrupt Blosc frame", decompress_blosc, blosc_zstd, 4, 16}};
}

// What decoding gives, or the message of its error; nothing may be written behind `space`.
Text outcome(const Example& example, const Text& stored, int64_t space) {
  constexpr size_t kGuard = 64;
  std::vector<char> room(static_cast<size_t>(space) + kGuard, '\x5a');
  // A copy of its very size, so that the address sanitizer sees what is read behind it.
  const std::vector<char> exact(stored.begin(), stored.end());
  Text result;
  try {
    const int64_t count = example.decode(exact, room.data(), space);
    REQUIRE(count <= space);
    result = Text(room.begin(), room.begin() + count);
  } catch (const Error& error) {
    CHECK((error.error_class() == ErrorClass::kBadData));
    result = error.message();
  }
  CHECK(std::count(room.begin() + space, room.end(), '\x5a') == kGuard);
  return result;
}

}  // namespace

TEST_CASE("codecs: what other programs stored") {
  for (const Example& example : examples()) {
    CAPTURE(example.name);
    CHECK(outcome(example, example.stored, kNumBytes) == plain_bytes());
    CHECK(outcome(example, example.stored, kNumBytes + 100) == plain_bytes());
  }
}

TEST_CASE("codecs: gzip's members and zstd's frames one behind the other") {
  for (const Example& example : examples()) {
    if (example.name == "gzip" || example.decode == decompress_zstd) {
      CAPTURE(example.name);
      const Text twice = example.stored + example.stored;
      CHECK(outcome(example, twice, 2 * kNumBytes) == plain_bytes() + plain_bytes());
      CHECK(contains(outcome(example, twice, 2 * kNumBytes - 1), example.error));
    }
  }
}

TEST_CASE("codecs: bytes cut, changed, too many, and too little space") {
  for (const Example& example : examples()) {
    CAPTURE(example.name);
    const Text& stored = example.stored;
    for (size_t size = 0; size < stored.size(); ++size) {
      CAPTURE(size);
      CHECK(contains(outcome(example, stored.substr(0, size), kNumBytes), example.error));
    }
    for (int64_t space = 0; space < kNumBytes; ++space) {
      CAPTURE(space);
      CHECK(contains(outcome(example, stored, space), example.error));
    }
    for (size_t place = 0; place < stored.size(); ++place) {
      for (int bit = 0; bit < 8; ++bit) {
        CAPTURE(place);
        CAPTURE(bit);
        Text changed = stored;
        changed[place] = static_cast<char>(changed[place] ^ 1 << bit);
        const Text result = outcome(example, changed, kNumBytes);  // often values, where there is no checksum
        if (place >= example.header_begin && place < example.header_end) {
          CHECK(contains(result, example.error));
        }
      }
    }
    CHECK(contains(outcome(example, stored + 'x', kNumBytes), example.error));
  }
}

TEST_CASE("codecs: sizes that a header tells are no reason to write or to wait") {
  const Example lz4{"", "", decompress_lz4, {}, 0, 0};
  const Example lz4_hdf5{"", "", decompress_lz4_hdf5, {}, 0, 0};
  CHECK(contains(outcome(lz4, from_hex("ffffffff00"), kNumBytes), "4294967295 bytes, where at most 192 can be"));
  CHECK(contains(outcome(lz4_hdf5, Text(8, '\xff') + big_endian(64, 4), kNumBytes), "where at most 192 can be"));
  // Blocks of no bytes bring the decoding no further.
  CHECK(contains(outcome(lz4_hdf5, big_endian(kNumBytes, 8) + Text(100, '\0'), kNumBytes), "it ends early"));
  CHECK(outcome(lz4_hdf5, Text(12, '\0'), kNumBytes).empty());
}

TEST_CASE("codecs: a match of BloscLZ whose length overflows an int") {
  // One literal byte; a match of 255, 255, ..., 1 at distance 1.
  const Text match = from_hex("0061e0") + Text(8'500'000, '\xff') + from_hex("01000000");
  const auto number = [](size_t value) {
    const Text bytes = big_endian(value, 4);
    return Text(bytes.rbegin(), bytes.rend());
  };
  const Text frame = from_hex("02011001") + number(64) + number(64) + number(24 + match.size()) + number(20) +
                     number(match.size()) + match;
  CHECK(contains(outcome({"", "", decompress_blosc, {}, 0, 0}, frame, 64), "a match is longer than a block can be"));
}

TEST_CASE("codecs: CRC-32C") {
  CHECK(crc32c(std::string_view("123456789")) == 0xe3069283);
  CHECK(crc32c(Text(32, '\0')) == 0x8a9136aa);  // RFC 3720, appendix B.4
  CHECK(crc32c(Text(32, '\xff')) == 0x62a8ab43);
  const auto by_definition = [](std::span<const char> bytes) {
    uint32_t crc = ~0u;
    for (const char byte : bytes) {
      crc ^= static_cast<unsigned char>(byte);
      for (int bit = 0; bit < 8; ++bit) {
        crc = crc >> 1 ^ (crc % 2 != 0 ? 0x82f63b78 : 0);
      }
    }
    return ~crc;
  };
  const Text bytes = plain_bytes();
  for (size_t begin = 0; begin < 8; ++begin) {
    for (size_t count = 0; count <= 40; ++count) {
      const auto part = std::span<const char>(bytes).subspan(begin, count);
      CHECK(crc32c(part) == by_definition(part));
    }
  }
}

}  // namespace vit_hybrid::data
