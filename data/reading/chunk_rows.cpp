// The inverse filters (zlib's inflation, byte order, checksum), and rows put together of decoded chunks.
#include "data/reading/chunk_rows.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <string>

#include "src/base/error.h"
#include "src/base/instruction_sets.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

constexpr size_t kChecksumBytes = 4;

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorClass::kBadData, what, "the file is damaged: copy or make it again");
}

// What is before it, where that has the checksum at its end (little-endian).
std::span<const char> check_sum(std::span<const char> stored, ChunkFilter filter) {
  if (stored.size() < kChecksumBytes) {
    fail("shorter than its checksum");
  }
  const auto values = stored.first(stored.size() - kChecksumBytes);
  uint32_t expected = 0;
  for (size_t i = 0; i < kChecksumBytes; ++i) {
    expected |= static_cast<uint32_t>(static_cast<unsigned char>(stored[values.size() + i])) << (8 * i);
  }
  const bool is_crc = filter == ChunkFilter::kCrc32c;
  if ((is_crc ? crc32c(values) : fletcher32(values)) != expected) {
    fail(is_crc ? "wrong CRC-32C checksum" : "wrong Fletcher-32 checksum");
  }
  return values;
}

void check_size(int64_t bytes, int64_t wanted) {
  if (bytes != wanted) {
    fail(str(bytes, " bytes of values, where the chunk has ", wanted));
  }
}

int64_t decompress(ChunkFilter filter, std::span<const char> stored, char* to, int64_t space) {
  switch (filter) {
    case ChunkFilter::kDeflate:
      return inflate(stored, to, space);
    case ChunkFilter::kZstd:
      return decompress_zstd(stored, to, space);
    case ChunkFilter::kBlosc:
      return decompress_blosc(stored, to, space);
    case ChunkFilter::kLz4:
      return decompress_lz4(stored, to, space);
    case ChunkFilter::kLz4Hdf5:
      return decompress_lz4_hdf5(stored, to, space);
    case ChunkFilter::kShuffle:
    case ChunkFilter::kFletcher32:
    case ChunkFilter::kCrc32c:
      break;
  }
  fail(str("filter ", static_cast<int64_t>(filter), " is not known"));
}

template <class Word>
VH_VERSIONS void join_words(const char* shuffled, int64_t count, char* values) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Word));
  const auto* in = reinterpret_cast<const unsigned char*>(shuffled);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    Word value = 0;
#pragma GCC unroll 8
    for (int64_t k = 0; k < kBytes; ++k) {
      value = static_cast<Word>(value | static_cast<Word>(in[i + k * count]) << (8 * k));
    }
    std::memcpy(values + kBytes * i, &value, sizeof(value));
  }
}

using Shape = std::vector<int64_t>;

// Shorter runs are copied out of one read of all bytes between the first and the last of them.
constexpr int64_t kLongRun = int64_t{1} << 15;

// Small enough to be in the second level cache when it is normalized, large enough to cost nothing by its number.
constexpr int64_t kReadPieceBytes = int64_t{1} << 18;

int64_t item_bytes(const ArrayLayout& layout) {
  return static_cast<int64_t>(c10::elementSize(layout.type));
}

// The index along each dim of chunk `number` of the grid that covers `shape`.
Shape index_in_grid(int64_t number, const Shape& shape, const Shape& chunk) {
  Shape index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    const int64_t chunks = shape[d] / chunk[d] + (shape[d] % chunk[d] != 0 ? 1 : 0);
    index[d] = number % chunks;
    number /= chunks;
  }
  return index;
}

struct Run {
  int64_t in_chunk;
  int64_t in_box;
  int64_t count;
};

// Of each chunk that holds a part of the boxes, by its number in the layout's table; in the order of the chunk's bytes.
std::map<size_t, std::vector<Run>> runs_of_chunks(const ArrayLayout& layout, int64_t row,
                                                  std::span<const RowBox> boxes) {
  const int64_t item = item_bytes(layout);
  std::map<size_t, std::vector<Run>> runs;
  for (const RowBox& box : boxes) {
    for_each_chunk(layout, row, box, [&](size_t number, const ChunkOverlap& part) {
      for_each_run(part.size, part.in_chunk, part.in_box, [&](int64_t in_chunk, int64_t in_box, int64_t count) {
        runs[number].push_back({in_chunk * item, (box.at + in_box) * item, count * item});
      });
    });
  }
  for (auto& [number, of_chunk] : runs) {
    std::sort(of_chunk.begin(), of_chunk.end(), [](const Run& a, const Run& b) { return a.in_chunk < b.in_chunk; });
  }
  return runs;
}

void copy_runs(const std::vector<Run>& runs, const char* chunk, char* box) {
  for (const Run& run : runs) {
    std::memcpy(box + run.in_box, chunk + run.in_chunk, static_cast<size_t>(run.count));
  }
}

void read_pieces(const PosixFile& file, int64_t offset, char* to, const Run& run, const Decoded& arrived) {
  const int64_t most = arrived ? kReadPieceBytes : run.count;
  for (int64_t done = 0; done < run.count; done += most) {
    const int64_t piece = std::min(most, run.count - done);
    file.read(offset + run.in_chunk + done, to + run.in_box + done, piece);
    if (arrived) {
      arrived(run.in_box + done, piece);
    }
  }
}

bool are_long(const std::vector<Run>& runs) {
  return runs.front().count >= kLongRun;
}

// Out of a chunk's slice of one row, which lies at `offset`; long runs are told of.
int64_t read_slice(const PosixFile& file, int64_t offset, const std::vector<Run>& runs, char* to, TensorPool& buffers,
                   const Decoded& arrived) {
  if (are_long(runs)) {
    int64_t bytes = 0;
    for (const Run& run : runs) {
      read_pieces(file, offset, to, run, arrived);
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

// Where the stored bytes of a chunk lie.
struct ChunkPlace {
  const PosixFile* file;
  int64_t offset;
  int64_t bytes;
  int64_t mask = 0;  // of filters
};

// Finds the chunks of one array: in its file by the layout's table, else in files of their own, of which the last one
// is kept open with its index, since the next chunk is often in the same shard.
class ChunkFinder {
 public:
  ChunkFinder(const RowFile& where, const PosixFile* opened)
      : where_(where),
        layout_(where.layout),
        opened_(opened),
        value_bytes_(num_elements(layout_.chunk) * item_bytes(layout_)) {}

  // Nothing where a chunk in files of their own is not stored.
  std::optional<ChunkPlace> find(size_t number) {
    if (layout_.storage != ArrayLayout::Storage::kChunkFiles) {
      const bool is_filtered = layout_.storage == ArrayLayout::Storage::kFiltered;
      return ChunkPlace{opened_, layout_.chunk_offsets[number],
                        is_filtered ? layout_.chunk_bytes[number] : value_bytes_,
                        is_filtered ? layout_.chunk_masks[number] : 0};
    }
    Shape file_index = index_in_grid(static_cast<int64_t>(number), layout_.shape, layout_.chunk);
    int64_t in_file = 0;
    const Shape& shard = layout_.chunk_files.shard;
    for (size_t d = 0; d < shard.size(); ++d) {
      const int64_t chunks = shard[d] / layout_.chunk[d];
      in_file = in_file * chunks + file_index[d] % chunks;
      file_index[d] /= chunks;
    }
    open(str(where_.path, "/", layout_.chunk_files.prefix, join(file_index, layout_.chunk_files.separator)));
    if (!file_) {
      return std::nullopt;
    }
    return shard.empty() ? ChunkPlace{&*file_, 0, file_->size()} : in_shard(in_file);
  }

 private:
  static constexpr int64_t kIndexEntry = 16;  // bytes: offset and number, both ~0 of a chunk that is not stored

  void open(const std::string& path) {
    if (path == path_) {
      return;
    }
    path_ = path;
    file_.reset();
    index_.clear();
    if (::access(path.c_str(), F_OK) == 0 || errno != ENOENT) {
      file_.emplace(path, PosixFile::Access::kRead);  // throws the error of what cannot be read
    }
    if (file_ && !layout_.chunk_files.shard.empty()) {
      read_index();
    }
  }

  void read_index() {
    int64_t bytes = kIndexEntry;
    for (size_t d = 0; d < layout_.chunk.size(); ++d) {
      bytes *= layout_.chunk_files.shard[d] / layout_.chunk[d];
    }
    const bool has_checksum = layout_.chunk_files.index_has_checksum;
    const int64_t stored_bytes = bytes + (has_checksum ? static_cast<int64_t>(kChecksumBytes) : 0);
    if (file_->size() < stored_bytes) {
      fail(str(path_, " has ", file_->size(), " bytes, fewer than its index of chunks (", stored_bytes, ")"));
    }
    std::string stored(static_cast<size_t>(stored_bytes), 0);
    file_->read(layout_.chunk_files.index_at_end ? file_->size() - stored_bytes : 0, stored.data(), stored_bytes);
    try {
      const auto index = has_checksum ? check_sum(stored, ChunkFilter::kCrc32c) : std::span<const char>(stored);
      index_.resize(static_cast<size_t>(bytes / static_cast<int64_t>(sizeof(uint64_t))));
      std::memcpy(index_.data(), index.data(), index.size());
    } catch (const Error& error) {
      throw Error(error.error_class(), str(path_, ": the index of its chunks: ", error.message()), error.hint());
    }
  }

  std::optional<ChunkPlace> in_shard(int64_t number) const {
    const uint64_t offset = index_[static_cast<size_t>(2 * number)],
                   bytes = index_[static_cast<size_t>(2 * number + 1)];
    if (offset == ~uint64_t{0} && bytes == ~uint64_t{0}) {
      return std::nullopt;
    }
    const auto size = static_cast<uint64_t>(file_->size());
    if (offset > size || bytes > size - offset) {
      fail(str(path_, " has ", size, " bytes, and by its index a chunk of ", bytes, " bytes at byte ", offset));
    }
    return ChunkPlace{&*file_, static_cast<int64_t>(offset), static_cast<int64_t>(bytes)};
  }

  const RowFile& where_;
  const ArrayLayout& layout_;
  const PosixFile* const opened_;
  const int64_t value_bytes_;
  std::string path_;
  std::optional<PosixFile> file_;
  std::vector<uint64_t> index_;  // of the shard, in the order of bytes that Zarr has: little-endian
};

// Of values of `item` bytes each.
void swap_bytes(char* values, int64_t bytes, int64_t item) {
  for (char* value = values; value < values + bytes; value += item) {
    std::reverse(value, value + item);
  }
}

// The stored bytes of a chunk as values, of all of which `decoded` is told.
void read_chunk(const ChunkPlace& place, const ArrayLayout& layout, char* values, int64_t value_bytes,
                TensorPool& buffers, const Decoded& decoded) {
  // No codec makes more of bytes that it cannot make fewer of; what does is no chunk, and may be of any size.
  const int64_t most_bytes = value_bytes + value_bytes / 8 + (int64_t{1} << 16);
  if (layout.storage == ArrayLayout::Storage::kChunkFiles && place.bytes > most_bytes) {
    fail(str(place.file->path(), " has a chunk of ", place.bytes, " bytes, of which the values have ", value_bytes));
  }
  // For all chunks of a shape alike, however long they are: the pool would keep one for each.
  const at::Tensor stored = buffers.take({std::max<int64_t>({place.bytes, value_bytes, 1})}, at::kByte);
  const std::span<char> bytes(static_cast<char*>(stored.data_ptr()), static_cast<size_t>(place.bytes));
  const auto read = [&](int64_t offset, char* to, int64_t count) {
    place.file->read(place.offset + offset, to, count);
  };
  const bool is_blosc = layout.filters == Shape{static_cast<int64_t>(ChunkFilter::kBlosc)} && place.mask == 0;
  const bool tells_of_blocks = is_blosc && decoded && !layout.chunk_files.is_swapped;
  if (!is_blosc) {
    read(0, bytes.data(), place.bytes);
  }
  bool is_telling = false;
  const auto tell = [&](int64_t first, int64_t count) {
    is_telling = true;
    decoded(first, count);
    is_telling = false;
  };
  try {
    if (is_blosc) {
      const Decoded of_block = tells_of_blocks ? Decoded(tell) : Decoded();
      check_size(decompress_blosc(read, bytes, values, value_bytes, of_block), value_bytes);
    } else {
      decode_chunk(bytes, {layout.filters, place.mask, item_bytes(layout)}, values, value_bytes, buffers);
    }
  } catch (const Error& error) {
    if (is_telling) {
      throw;
    }
    const bool is_own_file = layout.storage == ArrayLayout::Storage::kChunkFiles;
    throw Error(error.error_class(),
                str("the chunk of ", place.bytes, " bytes at byte ", place.offset,
                    is_own_file ? str(" of ", place.file->path()) : "", ": ", error.message()),
                error.hint());
  }
  if (layout.chunk_files.is_swapped) {
    swap_bytes(values, value_bytes, item_bytes(layout));
  }
  if (decoded && !tells_of_blocks) {
    decoded(0, value_bytes);
  }
}

// Adds to `told` of what `arrived` was told already.
int64_t read_filtered(const ChunkPlace& place, const ArrayLayout& layout, std::span<const RowRead> rows,
                      const std::vector<Run>& runs, TensorPool& buffers, const Arrived& arrived,
                      std::vector<Run>& told) {
  const int64_t slice_bytes = num_elements(inner_dims(layout.chunk)) * item_bytes(layout);
  const int64_t value_bytes = layout.chunk.front() * slice_bytes;
  // A chunk that is all that is wanted goes to its place at once.
  const bool is_whole =
      value_bytes == slice_bytes && rows.size() == 1 && runs.size() == 1 && runs.front().count == slice_bytes;
  const at::Tensor decoded = is_whole ? at::Tensor() : buffers.take({value_bytes}, at::kByte);
  char* values =
      is_whole ? static_cast<char*>(rows.front().to) + runs.front().in_box : static_cast<char*>(decoded.data_ptr());
  const auto tell = [&](int64_t first, int64_t count) { arrived(0, runs.front().in_box + first, count); };
  read_chunk(place, layout, values, value_bytes, buffers, is_whole && arrived ? Decoded(tell) : Decoded());
  if (is_whole) {
    told.push_back(runs.front());
  } else {
    for (const RowRead& row : rows) {
      copy_runs(runs, values + row.row % layout.chunk.front() * slice_bytes, static_cast<char*>(row.to));
    }
  }
  return place.bytes;
}

// Of the boxes of each row, but for what was told already of each.
void tell_rest(const ArrayLayout& layout, size_t num_rows, std::span<const RowBox> boxes, std::vector<Run> told,
               const Arrived& arrived) {
  std::sort(told.begin(), told.end(), [](const Run& a, const Run& b) { return a.in_box < b.in_box; });
  for (size_t row = 0; row < num_rows; ++row) {
    for (const RowBox& box : boxes) {
      int64_t begin = box.at * item_bytes(layout);
      const int64_t end = begin + box.num_values() * item_bytes(layout);
      for (const Run& run : told) {
        if (run.in_box >= begin && run.in_box < end) {
          if (run.in_box > begin) {
            arrived(row, begin, run.in_box - begin);
          }
          begin = run.in_box + run.count;
        }
      }
      if (begin < end) {
        arrived(row, begin, end - begin);
      }
    }
  }
}

template <class T>
void fill_runs(const std::vector<Run>& runs, T value, void* to) {
  for (const Run& run : runs) {
    std::fill_n(reinterpret_cast<T*>(static_cast<char*>(to) + run.in_box), run.count / static_cast<int64_t>(sizeof(T)),
                value);
  }
}

// What a chunk holds that is not stored.
void fill_rows(const ArrayLayout& layout, std::span<const RowRead> rows, const std::vector<Run>& runs) {
  if (!layout.chunk_files.has_fill) {
    fail(str("a chunk of ", shown(layout.name), " is not stored, or not any more, and has no fill value"));
  }
  AT_DISPATCH_ALL_TYPES_AND(at::kHalf, layout.type, "fill", [&] {
    for (const RowRead& row : rows) {
      fill_runs(runs, static_cast<scalar_t>(layout.chunk_files.fill), row.to);
    }
  });
}

}  // namespace

Shape inner_dims(const Shape& shape) {
  return {shape.begin() + 1, shape.end()};
}

void unshuffle(std::span<const char> shuffled, int64_t item_bytes, char* values) {
  const auto count = static_cast<int64_t>(shuffled.size()) / item_bytes;
  constexpr bool is_little = std::endian::native == std::endian::little;
  if (is_little && item_bytes == 2) {
    join_words<uint16_t>(shuffled.data(), count, values);
  } else if (is_little && item_bytes == 4) {
    join_words<uint32_t>(shuffled.data(), count, values);
  } else if (is_little && item_bytes == 8) {
    join_words<uint64_t>(shuffled.data(), count, values);
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
  const auto is_move = [](ChunkFilter filter) {
    return filter != ChunkFilter::kFletcher32 && filter != ChunkFilter::kCrc32c;
  };
  auto moves_left = std::count_if(to_undo.begin(), to_undo.end(), is_move);
  // A checksum may lie inside of the deflated bytes, which are then more than the values.
  const int64_t space = num_value_bytes + static_cast<int64_t>(kChecksumBytes * to_undo.size());
  for (const ChunkFilter filter : to_undo) {
    if (!is_move(filter)) {
      stored = check_sum(stored, filter);
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
    if (filter == ChunkFilter::kShuffle) {
      unshuffle(stored, pipeline.item_bytes, to);
    } else {
      count = decompress(filter, stored, to, is_last ? num_value_bytes : space);
    }
    stored = {to, static_cast<size_t>(count)};
  }
  check_size(static_cast<int64_t>(stored.size()), num_value_bytes);
  if (stored.data() != values) {
    std::memcpy(values, stored.data(), stored.size());
  }
}

void for_each_chunk(const ArrayLayout& layout, int64_t row, const RowBox& box,
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

int64_t read_runs(const PosixFile& file, const ArrayLayout& layout, int64_t offset, const RowBox& box, char* to,
                  const Decoded& arrived) {
  const int64_t item = item_bytes(layout);
  const Shape corner(box.size.size(), 0);
  int64_t bytes = 0;
  for_each_run(box.size, {inner_dims(layout.shape), box.start}, {box.size, corner},
               [&](int64_t in_row, int64_t in_box, int64_t count) {
                 read_pieces(file, offset, to, {in_row * item, in_box * item, count * item}, arrived);
                 bytes += count * item;
               });
  return bytes;
}

int64_t read_chunks(const RowFile& file, const PosixFile* opened, std::span<const RowRead> rows,
                    std::span<const RowBox> boxes, TensorPool& buffers, const Arrived& arrived) {
  const ArrayLayout& layout = file.layout;
  const int64_t rows_per_chunk = layout.chunk.front();
  const int64_t slice_bytes = num_elements(inner_dims(layout.chunk)) * item_bytes(layout);
  const bool is_decoded = !layout.filters.empty() || layout.chunk_files.is_swapped;
  ChunkFinder finder(file, opened);
  std::vector<Run> told;
  int64_t bytes = 0;
  for (const auto& [number, runs] : runs_of_chunks(layout, rows.front().row, boxes)) {
    const auto place = finder.find(number);
    if (!place) {
      fill_rows(layout, rows, runs);
      continue;
    }
    if (is_decoded) {
      bytes += read_filtered(*place, layout, rows, runs, buffers, arrived, told);
      continue;
    }
    if (place->bytes != rows_per_chunk * slice_bytes) {
      fail(str(place->file->path(), " holds a chunk of ", place->bytes, " bytes, its values have ",
               rows_per_chunk * slice_bytes));
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t offset = place->offset + rows[i].row % rows_per_chunk * slice_bytes;
      const auto tell = [&](int64_t first, int64_t count) { arrived(i, first, count); };
      bytes += read_slice(*place->file, offset, runs, static_cast<char*>(rows[i].to), buffers,
                          arrived ? Decoded(tell) : Decoded());
    }
    if (are_long(runs)) {
      told.insert(told.end(), runs.begin(), runs.end());
    }
  }
  if (arrived) {
    tell_rest(layout, rows.size(), boxes, std::move(told), arrived);
  }
  return bytes;
}

at::Tensor read_chunk_files(const RowFile& file) {
  const ArrayLayout& layout = file.layout;
  VH_ASSERT(layout.shape.size() == 1 && layout.storage == ArrayLayout::Storage::kChunkFiles, "a list in chunk files");
  TensorPool buffers;
  ChunkFinder finder(file, nullptr);
  const int64_t chunk = layout.chunk.front(), chunks = layout.chunks_along(0), item = item_bytes(layout);
  const at::Tensor values = at::empty({chunks * chunk}, layout.type);
  for (int64_t number = 0; number < chunks; ++number) {
    char* const to = static_cast<char*>(values.data_ptr()) + number * chunk * item;
    if (const auto place = finder.find(static_cast<size_t>(number))) {
      read_chunk(*place, layout, to, chunk * item, buffers, {});
    } else {
      const RowRead row{0, 0, to};
      fill_rows(layout, {&row, 1}, {{0, 0, chunk * item}});
    }
  }
  return values.narrow(0, 0, layout.shape.front());
}

}  // namespace vit_hybrid::data
