// Codecs: bytes that numcodecs and the zstd program made, bytes cut, changed and too long, and CRC-32C by its
// definition.
#include <blosc.h>
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

int64_t decompress_blosc_by_blocks(std::span<const char> stored, char* to, int64_t space);

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
          {"Blosc, zstd", "corrupt Blosc frame", decompress_blosc, blosc_zstd, 4, 16},
          {"Blosc, a block", "corrupt Blosc frame", decompress_blosc_by_blocks, blosc_lz4, 4, 16}};
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

// As the values of a file are decoded: read in parts, and told of in parts, of which each byte has to come once.
int64_t blosc_by_blocks(std::span<const char> stored, char* to, int64_t space, int64_t* largest_read) {
  std::vector<char> room(stored.size());
  std::vector<int> times(static_cast<size_t>(space), 0);
  const auto read = [&](int64_t offset, char* place, int64_t count) {
    REQUIRE(offset >= 0);
    REQUIRE(count >= 0);
    REQUIRE(offset + count <= std::ssize(stored));
    std::copy_n(stored.begin() + offset, count, place);
    *largest_read = std::max(*largest_read, count);
  };
  const auto told = [&](int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) {
      ++times[static_cast<size_t>(i)];
    }
  };
  const int64_t count = decompress_blosc(read, room, to, space, told);
  CHECK(std::count(times.begin(), times.begin() + count, 1) == count);
  CHECK(std::count(times.begin() + count, times.end(), 0) == space - count);
  return count;
}

int64_t decompress_blosc_by_blocks(std::span<const char> stored, char* to, int64_t space) {
  int64_t largest_read = 0;
  return blosc_by_blocks(stored, to, space, &largest_read);
}

// Smooth in every byte of an item, or noise that no codec makes smaller.
Text some_values(size_t count, size_t item, bool is_noise) {
  Text bytes(count, '\0');
  uint32_t state = 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    const size_t smooth = i / item / (17 + 100 * (i % item));
    bytes[i] = static_cast<char>(is_noise || i % 97 == 0 ? state >> 24 : smooth);
  }
  return bytes;
}

Text blosc_frame(const Text& bytes, int shuffle, size_t item, const char* codec, size_t block_bytes, int threads) {
  Text frame(bytes.size() + BLOSC_MAX_OVERHEAD, '\0');
  const int size = blosc_compress_ctx(5, shuffle, item, bytes.size(), bytes.data(), frame.data(), frame.size(), codec,
                                      block_bytes, threads);
  REQUIRE(size > 0);
  frame.resize(static_cast<size_t>(size));
  return frame;
}

int32_t number_at(const Text& frame, size_t place) {
  int32_t number = 0;
  std::memcpy(&number, frame.data() + place, sizeof(number));
  return number;
}

void set_number(Text& frame, size_t place, int32_t number) {
  std::memcpy(frame.data() + place, &number, sizeof(number));
}

constexpr int32_t kBlockBytes = 1 << 16;
constexpr size_t kBloscTable = 16;

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

TEST_CASE("codecs: Blosc's blocks one by one, whatever their size, order and codec") {
  for (const size_t count : {size_t{100}, size_t{1 << 16}, size_t{1 << 17}, size_t{(1 << 17) + 8}, size_t{700'003}}) {
    for (const size_t item : {1, 2, 3, 4, 8, 16}) {
      if (count > 1 << 19 && item != 3 && item != 8) {
        continue;  // what takes long: with an item that fits blocks, and one that does not
      }
      for (const int shuffle : {BLOSC_NOSHUFFLE, BLOSC_SHUFFLE, BLOSC_BITSHUFFLE}) {
        for (const char* const codec : {"blosclz", "lz4", "zstd"}) {
          for (const size_t block_bytes : {size_t{0}, size_t{1000}, size_t{kBlockBytes}, size_t{600'000}}) {
            CAPTURE(count);
            CAPTURE(item);
            CAPTURE(shuffle);
            CAPTURE(codec);
            CAPTURE(block_bytes);
            const Text values = some_values(count, item, false);
            const Text frame =
                blosc_frame(values, shuffle, item, codec, block_bytes, block_bytes == kBlockBytes ? 4 : 1);
            const Example example{"", "", decompress_blosc_by_blocks, frame, 0, 0};
            CHECK(outcome(example, frame, static_cast<int64_t>(count)) == values);
            CHECK(outcome(example, frame, static_cast<int64_t>(count) + 7) == values);
          }
        }
      }
    }
  }
}

TEST_CASE("codecs: a frame of Blosc is read in parts where it has blocks, else at once") {
  const auto largest_read = [](const Text& values, const Text& frame) {
    int64_t largest = 0;
    Text decoded(values.size(), '\0');
    CHECK(blosc_by_blocks(frame, decoded.data(), std::ssize(decoded), &largest) == std::ssize(values));
    CHECK(decoded == values);
    return largest;
  };
  const Text values = some_values(4 << 20, 4, false), noise = some_values(4 << 20, 4, true);
  const Text blocks = blosc_frame(values, BLOSC_NOSHUFFLE, 4, "lz4", kBlockBytes, 1);
  REQUIRE(blocks.size() > 1 << 19);
  CHECK(largest_read(values, blocks) <= 1 << 18);
  const Text stored_as_they_are = blosc_frame(noise, BLOSC_SHUFFLE, 4, "lz4", kBlockBytes, 1);
  CHECK((static_cast<unsigned char>(stored_as_they_are[2]) & BLOSC_MEMCPYED) != 0);
  CHECK(largest_read(noise, stored_as_they_are) == std::ssize(stored_as_they_are));
  const Text large = blosc_frame(values, BLOSC_SHUFFLE, 4, "lz4", 1 << 20, 1);
  CHECK(largest_read(values, large) < std::ssize(large) / 2);
}

TEST_CASE("codecs: blocks of Blosc in another order, in each other, and outside of the frame") {
  constexpr int32_t kSplitBlock = 2 * kBlockBytes;  // one part for each byte of an item
  const Text values = some_values(5 * kSplitBlock + 1000, 2, false);
  const auto space = std::ssize(values);
  const Text frame = blosc_frame(values, BLOSC_SHUFFLE, 2, "lz4", kBlockBytes, 1);
  REQUIRE(number_at(frame, 8) == kSplitBlock);
  const Example by_blocks{"", "", decompress_blosc_by_blocks, {}, 0, 0}, whole{"", "", decompress_blosc, {}, 0, 0};
  REQUIRE(outcome(by_blocks, frame, space) == values);

  // As several threads write them: the first two blocks have changed places.
  Text turned = frame;
  const int32_t first = number_at(frame, kBloscTable), second = number_at(frame, kBloscTable + 4),
                third = number_at(frame, kBloscTable + 8);
  std::rotate(turned.begin() + first, turned.begin() + second, turned.begin() + third);
  set_number(turned, kBloscTable, first + third - second);
  set_number(turned, kBloscTable + 4, first);
  CHECK(turned != frame);
  CHECK(outcome(by_blocks, turned, space) == values);

  for (size_t block = 0; block < 6; ++block) {
    const size_t place = kBloscTable + 4 * block;
    const int32_t next = block < 5 ? number_at(frame, place + 4) : first;
    const auto size = static_cast<int32_t>(frame.size());
    for (const int32_t start : {0, 16, 39, size - 3, size, size + 1, INT32_MAX, INT32_MIN, -1, next}) {
      CAPTURE(block);
      CAPTURE(start);
      Text changed = frame;
      set_number(changed, place, start);
      CHECK(contains(outcome(by_blocks, changed, space), "corrupt Blosc frame"));
    }
    for (int32_t by = -3; by <= 3; ++by) {  // values or an error, nothing else
      Text changed = frame;
      set_number(changed, place, number_at(frame, place) + by);
      const Text result = outcome(by_blocks, changed, space);
      CHECK((result.size() == values.size() || contains(result, "corrupt Blosc frame")));
    }
  }
  for (size_t bit = 0; bit < 8 * (kBloscTable + 24 + 8); ++bit) {
    CAPTURE(bit);
    Text changed = frame;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ 1 << bit % 8);
    const Text result = outcome(by_blocks, changed, space);
    CHECK((result.size() == values.size() || contains(result, "corrupt Blosc frame")));
    if (bit / 8 < kBloscTable) {
      CHECK(result == outcome(whole, changed, space));
    }
  }
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
