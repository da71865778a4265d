// The inverse filters (zlib's inflation, byte order, checksum), and rows put together of decoded chunks.
#include "data/reading/chunk_rows.h"

#include <c10/core/ScalarType.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <string>

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

using Shape = std::vector<int64_t>;

// Shorter runs are copied out of one read of all bytes between the first and the last of them.
constexpr int64_t kLongRun = int64_t{1} << 15;

int64_t item_bytes(const Hdf5Layout& layout) {
  return static_cast<int64_t>(c10::elementSize(layout.type));
}

struct Run {
  int64_t in_chunk;
  int64_t in_box;
  int64_t count;
};

std::vector<Run> runs_of(const ChunkOverlap& part, int64_t item) {
  std::vector<Run> runs;
  for_each_run(part.size, part.in_chunk, part.in_box, [&](int64_t in_chunk, int64_t in_box, int64_t count) {
    runs.push_back({in_chunk * item, in_box * item, count * item});
  });
  return runs;
}

void copy_runs(const std::vector<Run>& runs, const char* chunk, char* box) {
  for (const Run& run : runs) {
    std::memcpy(box + run.in_box, chunk + run.in_chunk, static_cast<size_t>(run.count));
  }
}

// Out of a chunk's slice of one row, which lies at `offset`.
int64_t read_slice(const PosixFile& file, int64_t offset, const std::vector<Run>& runs, char* to, TensorPool& buffers) {
  if (runs.front().count >= kLongRun) {
    int64_t bytes = 0;
    for (const Run& run : runs) {
      file.read(offset + run.in_chunk, to + run.in_box, run.count);
      bytes += run.count;
    }
    return bytes;
  }
  const int64_t begin = runs.front().in_chunk;
  const int64_t bytes = runs.back().in_chunk + runs.back().count - begin;
  const at::Tensor buffer = buffers.take({bytes}, at::kByte);
  auto* between = static_cast<char*>(buffer.data_ptr());
  file.read(offset + begin, between, bytes);
  for (const Run& run : runs) {
    std::memcpy(to + run.in_box, between + run.in_chunk - begin, static_cast<size_t>(run.count));
  }
  return bytes;
}

int64_t read_filtered(const PosixFile& file, const Hdf5Layout& layout, size_t number, std::span<const RowRead> rows,
                      const std::vector<Run>& runs, TensorPool& buffers) {
  const int64_t bytes = layout.chunk_bytes[number];
  const int64_t offset = layout.chunk_offsets[number];
  const int64_t slice_bytes = num_elements(inner_dims(layout.chunk)) * item_bytes(layout);
  const int64_t value_bytes = layout.chunk.front() * slice_bytes;
  const at::Tensor stored = buffers.take({bytes}, at::kByte);
  file.read(offset, stored.data_ptr(), bytes);
  // A chunk that is all that is wanted goes to its place at once.
  const bool is_whole =
      value_bytes == slice_bytes && rows.size() == 1 && runs.size() == 1 && runs.front().count == slice_bytes;
  const at::Tensor decoded = is_whole ? at::Tensor() : buffers.take({value_bytes}, at::kByte);
  char* values =
      is_whole ? static_cast<char*>(rows.front().to) + runs.front().in_box : static_cast<char*>(decoded.data_ptr());
  try {
    decode_chunk({static_cast<const char*>(stored.const_data_ptr()), static_cast<size_t>(bytes)},
                 {layout.filters, layout.chunk_masks[number], item_bytes(layout)}, values, value_bytes, buffers);
  } catch (const Error& error) {
    throw Error(error.error_class(), str("the chunk of ", bytes, " bytes at byte ", offset, ": ", error.message()),
                error.hint());
  }
  if (!is_whole) {
    for (const RowRead& row : rows) {
      copy_runs(runs, values + row.row % layout.chunk.front() * slice_bytes, static_cast<char*>(row.to));
    }
  }
  return bytes;
}

}  // namespace

Shape inner_dims(const Shape& shape) {
  return {shape.begin() + 1, shape.end()};
}

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

void for_each_chunk(const Hdf5Layout& layout, int64_t row, const RowBox& box,
                    const std::function<void(size_t, const ChunkOverlap&)>& visit) {
  const Shape row_shape = inner_dims(layout.shape), chunk_shape = inner_dims(layout.chunk);
  Shape corner(row_shape.size(), 0);
  // The chunks that hold one row lie one after the other in the table, in row-major order of the inner grid.
  int64_t number = row / layout.chunk.front() * layout.chunks_per_row();
  for (bool is_over = false; !is_over; ++number) {
    ChunkOverlap part{corner, {chunk_shape, corner}, {box.size, corner}};
    for (size_t d = 0; d < corner.size(); ++d) {
      const int64_t begin = std::max(corner[d], box.start[d]);
      const int64_t end = std::min(corner[d] + chunk_shape[d], box.start[d] + box.size[d]);
      part.size[d] = std::max<int64_t>(end - begin, 0);
      part.in_chunk.start[d] = begin - corner[d];
      part.in_box.start[d] = begin - box.start[d];
    }
    if (num_elements(part.size) > 0) {
      visit(static_cast<size_t>(number), part);
    }
    is_over = true;
    for (size_t d = corner.size(); is_over && d-- > 0;) {
      corner[d] += chunk_shape[d];
      is_over = corner[d] >= row_shape[d];
      corner[d] = is_over ? 0 : corner[d];
    }
  }
}

int64_t read_runs(const PosixFile& file, const Hdf5Layout& layout, int64_t offset, const RowBox& box, char* to,
                  int64_t piece_bytes, const std::function<void(int64_t, int64_t)>& arrived) {
  const int64_t item = item_bytes(layout);
  const Shape corner(box.size.size(), 0);
  int64_t bytes = 0;
  for_each_run(box.size, {inner_dims(layout.shape), box.start}, {box.size, corner},
               [&](int64_t in_row, int64_t in_box, int64_t count) {
                 for (int64_t done = 0; done < count * item; done += piece_bytes) {
                   const int64_t piece = std::min(piece_bytes, count * item - done);
                   file.read(offset + in_row * item + done, to + in_box * item + done, piece);
                   arrived(in_box * item + done, piece);
                 }
                 bytes += count * item;
               });
  return bytes;
}

int64_t read_chunks(const PosixFile& file, const Hdf5Layout& layout, std::span<const RowRead> rows, const RowBox& box,
                    TensorPool& buffers) {
  const int64_t rows_per_chunk = layout.chunk.front();
  const int64_t slice_bytes = num_elements(inner_dims(layout.chunk)) * item_bytes(layout);
  int64_t bytes = 0;
  for_each_chunk(layout, rows.front().row, box, [&](size_t number, const ChunkOverlap& part) {
    const std::vector<Run> runs = runs_of(part, item_bytes(layout));
    if (layout.storage == Hdf5Layout::Storage::kFiltered) {
      bytes += read_filtered(file, layout, number, rows, runs, buffers);
      return;
    }
    for (const RowRead& row : rows) {
      const int64_t offset = layout.chunk_offsets[number] + row.row % rows_per_chunk * slice_bytes;
      bytes += read_slice(file, offset, runs, static_cast<char*>(row.to), buffers);
    }
  });
  return bytes;
}

}  // namespace vit_hybrid::data
