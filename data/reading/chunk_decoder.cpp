// The inverse filters: zlib's inflation, byte order, checksum.
#include "data/reading/chunk_decoder.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/instruction_sets.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr size_t kChecksumBytes = 4;

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorClass::kBadData, what, "the file is damaged: copy or make it again");
}

// Bytes after the filter are at most `space`; returns how many they are.
int64_t inflate_chunk(std::span<const char> stored, char* to, int64_t space) {
  z_stream stream{};
  if (inflateInit(&stream) != Z_OK) {
    throw Error(ErrorClass::kInternal, "zlib cannot start");
  }
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(stored.data()));
  stream.avail_in = static_cast<uInt>(stored.size());  // HDF5's chunks are below 4 GiB
  stream.next_out = reinterpret_cast<Bytef*>(to);
  stream.avail_out = static_cast<uInt>(space);
  const int status = inflate(&stream, Z_FINISH);
  const std::string reason = stream.msg != nullptr ? stream.msg : "it ends early or is too long";
  const auto count = static_cast<int64_t>(stream.total_out);
  inflateEnd(&stream);
  if (status != Z_STREAM_END) {
    fail(str("corrupt deflate stream (", reason, ")"));
  }
  return count;
}

std::span<const char> check_sum(std::span<const char> stored) {
  if (stored.size() < kChecksumBytes) {
    fail("shorter than its checksum");
  }
  const auto values = stored.first(stored.size() - kChecksumBytes);
  uint32_t expected = 0;
  for (size_t i = 0; i < kChecksumBytes; ++i) {  // little-endian
    expected |= static_cast<uint32_t>(static_cast<unsigned char>(stored[values.size() + i])) << (8 * i);
  }
  if (fletcher32(values) != expected) {
    fail("wrong Fletcher-32 checksum");
  }
  return values;
}

VH_VERSIONS void join_four(const char* shuffled, int64_t count, char* values) {
  const auto* in = reinterpret_cast<const unsigned char*>(shuffled);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t value = static_cast<uint32_t>(in[i]) | static_cast<uint32_t>(in[i + count]) << 8 |
                           static_cast<uint32_t>(in[i + 2 * count]) << 16 |
                           static_cast<uint32_t>(in[i + 3 * count]) << 24;
    std::memcpy(values + 4 * i, &value, sizeof(value));
  }
}

}  // namespace

void unshuffle(std::span<const char> shuffled, int64_t item_bytes, char* values) {
  const auto count = static_cast<int64_t>(shuffled.size()) / item_bytes;
  const uint32_t probe = 1;
  if (item_bytes == 4 && *reinterpret_cast<const unsigned char*>(&probe) == 1) {  // little-endian machines
    join_four(shuffled.data(), count, values);
  } else {
    for (int64_t k = 0; k < item_bytes; ++k) {
      for (int64_t i = 0; i < count; ++i) {
        values[i * item_bytes + k] = shuffled[static_cast<size_t>(k * count + i)];
      }
    }
  }
  const auto rest = static_cast<size_t>(count * item_bytes);
  std::copy(shuffled.begin() + static_cast<std::ptrdiff_t>(rest), shuffled.end(), values + rest);
}

uint32_t fletcher32(std::span<const char> bytes) {
  const auto fold = [](uint32_t sum) { return (sum & 0xffff) + (sum >> 16); };
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])); };
  uint32_t first = 0;
  uint32_t second = 0;
  const size_t num_words = bytes.size() / 2;
  constexpr size_t kWordsBeforeOverflow = 360;
  for (size_t begin = 0; begin < num_words; begin += kWordsBeforeOverflow) {
    for (size_t word = begin; word < std::min(begin + kWordsBeforeOverflow, num_words); ++word) {
      first += byte(2 * word) << 8 | byte(2 * word + 1);
      second += first;
    }
    first = fold(first);
    second = fold(second);
  }
  if (bytes.size() % 2 != 0) {
    first += byte(bytes.size() - 1) << 8;
    second += first;
    first = fold(first);
    second = fold(second);
  }
  return fold(second) << 16 | fold(first);
}

void decode_chunk(std::span<const char> stored, const ChunkPipeline& pipeline, char* values, int64_t num_value_bytes,
                  TensorPool& pool) {
  std::vector<ChunkFilter> to_undo;
  for (size_t i = pipeline.filters.size(); i-- > 0;) {
    if ((pipeline.mask >> i & 1) == 0) {
      to_undo.push_back(static_cast<ChunkFilter>(pipeline.filters[i]));
    }
  }
  std::vector<at::Tensor> buffers;  // that `stored` points into
  const auto is_move = [](ChunkFilter filter) { return filter != ChunkFilter::kFletcher32; };
  auto moves_left = std::count_if(to_undo.begin(), to_undo.end(), is_move);
  // A checksum may lie inside of the deflated bytes, which are then more than the values.
  const int64_t space = num_value_bytes + static_cast<int64_t>(kChecksumBytes * to_undo.size());
  for (const ChunkFilter filter : to_undo) {
    if (!is_move(filter)) {
      stored = check_sum(stored);
      continue;
    }
    const bool is_last = --moves_left == 0 && filter == to_undo.back();
    auto count = static_cast<int64_t>(stored.size());
    char* to = values;
    if (!is_last) {
      buffers.push_back(pool.take({std::max(space, count)}, at::kByte));
      to = static_cast<char*>(buffers.back().data_ptr());
    } else if (filter == ChunkFilter::kShuffle && count > num_value_bytes) {
      fail(str(count, " bytes, where the chunk has ", num_value_bytes));
    }
    if (filter == ChunkFilter::kDeflate) {
      count = inflate_chunk(stored, to, is_last ? num_value_bytes : space);
    } else {
      unshuffle(stored, pipeline.item_bytes, to);
    }
    stored = {to, static_cast<size_t>(count)};
  }
  if (static_cast<int64_t>(stored.size()) != num_value_bytes) {
    fail(str(stored.size(), " bytes of values, where the chunk has ", num_value_bytes));
  }
  if (stored.data() != values) {
    std::memcpy(values, stored.data(), stored.size());
  }
}

}  // namespace vit_hybrid::data
