// Filters undone: bytes that zlib and a plain shuffle made, the checksum's published example, and damaged bytes.
#include <doctest/doctest.h>
#include <zlib.h>

#include <numeric>
#include <string>
#include <vector>

#include "data/reading/chunk_rows.h"
#include "src/base/error.h"
#include "tests/support/contains.h"

namespace vit_hybrid::data {
namespace {

using vit_hybrid::testing::contains;

using Bytes = std::vector<char>;

constexpr auto kDeflate = static_cast<int64_t>(ChunkFilter::kDeflate);
constexpr auto kShuffle = static_cast<int64_t>(ChunkFilter::kShuffle);
constexpr auto kFletcher32 = static_cast<int64_t>(ChunkFilter::kFletcher32);

Bytes some_bytes(size_t count) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<char>(i * i / 7 + i);
  }
  return bytes;
}

Bytes deflated(const Bytes& bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  Bytes result(size);
  REQUIRE(compress(reinterpret_cast<Bytef*>(result.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
                   static_cast<uLong>(bytes.size())) == Z_OK);
  result.resize(size);
  return result;
}

// Byte k of value i goes to place k n + i.
Bytes shuffled(const Bytes& bytes, size_t item) {
  const size_t count = bytes.size() / item;
  Bytes result = bytes;
  for (size_t i = 0; i < count; ++i) {
    for (size_t k = 0; k < item; ++k) {
      result[k * count + i] = bytes[i * item + k];
    }
  }
  return result;
}

Bytes with_checksum(Bytes bytes) {
  const uint32_t sum = fletcher32(bytes);
  for (int i = 0; i < 4; ++i) {
    bytes.push_back(static_cast<char>(sum >> (8 * i) & 0xff));
  }
  return bytes;
}

Bytes decoded(const Bytes& stored, std::vector<int64_t> filters, size_t count, int64_t item = 4, int64_t mask = 0) {
  TensorPool pool;
  Bytes values(count, '\x7f');
  decode_chunk(stored, {filters, mask, item}, values.data(), static_cast<int64_t>(count), pool);
  return values;
}

std::string message_of(const Bytes& stored, std::vector<int64_t> filters, size_t count) {
  try {
    decoded(stored, std::move(filters), count);
  } catch (const Error& error) {
    CHECK((error.error_class() == ErrorClass::kBadData));
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("chunk decoder: every pipeline is undone, whatever filter a chunk went without") {
  for (const size_t count : {4, 8, 60, 4096, 4097, 100003}) {
    const Bytes bytes = some_bytes(count);
    for (const size_t item : {1, 2, 4, 8}) {
      const auto size = static_cast<int64_t>(item);
      CHECK(decoded(shuffled(bytes, item), {kShuffle}, count, size) == bytes);
      CHECK(decoded(deflated(shuffled(bytes, item)), {kShuffle, kDeflate}, count, size) == bytes);
      CHECK(decoded(with_checksum(deflated(shuffled(bytes, item))), {kShuffle, kDeflate, kFletcher32}, count, size) ==
            bytes);
      CHECK(decoded(deflated(with_checksum(shuffled(bytes, item))), {kShuffle, kFletcher32, kDeflate}, count, size) ==
            bytes);
      CHECK(decoded(shuffled(deflated(bytes), item), {kDeflate, kShuffle}, count, size) == bytes);
    }
    CHECK(decoded(deflated(bytes), {kDeflate}, count) == bytes);
    CHECK(decoded(bytes, {kShuffle, kDeflate}, count, 4, 0b11) == bytes);
    CHECK(decoded(deflated(bytes), {kShuffle, kDeflate}, count, 4, 0b01) == bytes);
    CHECK(decoded(shuffled(bytes, 4), {kShuffle, kDeflate}, count, 4, 0b10) == bytes);
    CHECK(decoded(with_checksum(bytes), {kFletcher32}, count) == bytes);
  }
}

TEST_CASE("chunk decoder: Fletcher's checksum by its definition") {
  // Sums modulo 65535 of the 16-bit big-endian words, and of the partial sums, with 65535 kept where it comes up.
  const auto by_definition = [](const Bytes& bytes) {
    uint64_t first = 0;
    uint64_t second = 0;
    for (size_t i = 0; i < bytes.size(); i += 2) {
      const auto high = static_cast<unsigned char>(bytes[i]);
      const auto low = i + 1 < bytes.size() ? static_cast<unsigned char>(bytes[i + 1]) : 0;
      first = (first + high * 256u + low) % 65535;
      second = (second + first) % 65535;
    }
    return std::pair(static_cast<uint32_t>(first), static_cast<uint32_t>(second));
  };
  for (const size_t count : {1, 2, 3, 718, 720, 721, 722, 5000, 65537}) {
    const Bytes bytes = some_bytes(count);
    const auto [first, second] = by_definition(bytes);
    const uint32_t sum = fletcher32(bytes);
    CHECK((sum & 0xffff) % 65535 == first);
    CHECK((sum >> 16) % 65535 == second);
  }
}

TEST_CASE("chunk decoder: damaged chunks") {
  const Bytes bytes = some_bytes(5000);
  Bytes cut = deflated(bytes);
  cut.resize(cut.size() / 2);
  CHECK(contains(message_of(cut, {kDeflate}, 5000), "corrupt deflate stream"));
  Bytes changed = deflated(bytes);
  changed[changed.size() / 2] = static_cast<char>(changed[changed.size() / 2] ^ 0x10);
  CHECK(contains(message_of(changed, {kDeflate}, 5000), "corrupt deflate stream"));
  CHECK(contains(message_of(deflated(bytes), {kDeflate}, 4999), "corrupt deflate stream"));
  CHECK(contains(message_of(deflated(bytes), {kDeflate}, 5001), "5000 bytes of values, where the chunk has 5001"));
  CHECK(contains(message_of(bytes, {kShuffle}, 4000), "5000 bytes, where the chunk has 4000"));
  CHECK(contains(message_of({}, {kDeflate}, 5000), "corrupt deflate stream"));
  Bytes summed = with_checksum(bytes);
  summed[17] = static_cast<char>(summed[17] + 1);
  CHECK(contains(message_of(summed, {kFletcher32}, 5000), "wrong Fletcher-32 checksum"));
  CHECK(contains(message_of(Bytes(3, 'x'), {kFletcher32}, 5000), "shorter than its checksum"));
}

}  // namespace vit_hybrid::data
