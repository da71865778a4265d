// Boxes as runs, and rows read by pread from contiguous and chunked layouts, against arrays indexed element by element.
#include <blosc.h>
#include <doctest/doctest.h>

#include <numeric>
#include <thread>
#include <utility>

#include "data/hdf5/hdf5_layout.h"
#include "data/reading/box_runs.h"
#include "data/reading/chunk_rows.h"
#include "data/reading/row_reader.h"
#include "src/base/error.h"
#include "tests/support/scratch_folder.h"

namespace vit_hybrid::data {
namespace {

using Shape = std::vector<int64_t>;

std::vector<float> counted(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

// A file of 37 bytes of something else, then `values` [rows, 3, 5] cut into chunks, whose order in the file is
// reversed.
RowFile write_chunked(const std::string& path, const std::vector<float>& values, const Shape& shape,
                      const Shape& chunk) {
  RowFile file{path, {}};
  file.layout.shape = shape;
  file.layout.chunk = chunk;
  file.layout.storage = ArrayLayout::Storage::kChunked;
  const int64_t chunk_size = num_elements(chunk);
  PosixFile out(path, PosixFile::Access::kCreate);
  Shape grid;
  for (size_t d = 0; d < 3; ++d) {
    grid.push_back((shape[d] + chunk[d] - 1) / chunk[d]);
  }
  const int64_t num_chunks = num_elements(grid);
  for (int64_t number = 0; number < num_chunks; ++number) {
    std::vector<float> bytes(static_cast<size_t>(chunk_size), -1.0f);  // what is outside of the array
    const Shape corner = {number / (grid[1] * grid[2]) * chunk[0], number / grid[2] % grid[1] * chunk[1],
                          number % grid[2] * chunk[2]};
    for (int64_t e = 0; e < chunk_size; ++e) {
      const int64_t i = corner[0] + e / (chunk[1] * chunk[2]);
      const int64_t j = corner[1] + e / chunk[2] % chunk[1];
      const int64_t k = corner[2] + e % chunk[2];
      if (i < shape[0] && j < shape[1] && k < shape[2]) {
        bytes[static_cast<size_t>(e)] = values[static_cast<size_t>((i * shape[1] + j) * shape[2] + k)];
      }
    }
    const int64_t offset = 37 + (num_chunks - 1 - number) * chunk_size * 4;
    out.write(offset, bytes.data(), chunk_size * 4);
    file.layout.chunk_offsets.push_back(offset);
  }
  return file;
}

// The same, each chunk a frame of Blosc of several blocks.
RowFile with_blosc(RowFile file, const std::string& path, size_t block_bytes) {
  const int64_t chunk_bytes = num_elements(file.layout.chunk) * 4;
  const PosixFile in(file.path, PosixFile::Access::kRead);
  PosixFile out(path, PosixFile::Access::kCreate);
  int64_t end = 11;
  for (int64_t& offset : file.layout.chunk_offsets) {
    std::vector<char> values(static_cast<size_t>(chunk_bytes)), frame(values.size() + BLOSC_MAX_OVERHEAD);
    in.read(offset, values.data(), chunk_bytes);
    const int64_t size = blosc_compress_ctx(5, BLOSC_SHUFFLE, 4, values.size(), values.data(), frame.data(),
                                            frame.size(), "lz4", block_bytes, 1);
    REQUIRE(size > 0);
    out.write(end, frame.data(), size);
    file.layout.chunk_bytes.push_back(size);
    file.layout.chunk_masks.push_back(0);
    offset = std::exchange(end, end + size);
  }
  file.path = path;
  file.layout.storage = ArrayLayout::Storage::kFiltered;
  file.layout.filters = {static_cast<int64_t>(ChunkFilter::kBlosc)};
  return file;
}

}  // namespace

TEST_CASE("box runs: they cover the box once, and are as long as can be") {
  struct Case {
    Shape box;
    BoxPlace a;
    BoxPlace b;
    int64_t runs;
  };
  const std::vector<Case> cases = {
      {{2, 3, 4}, {{2, 3, 4}, {0, 0, 0}}, {{2, 3, 4}, {0, 0, 0}}, 1},
      {{2, 3, 4}, {{5, 3, 4}, {1, 0, 0}}, {{2, 3, 4}, {0, 0, 0}}, 1},
      {{2, 2, 4}, {{5, 3, 4}, {1, 1, 0}}, {{2, 2, 4}, {0, 0, 0}}, 2},
      {{2, 3, 2}, {{5, 3, 4}, {1, 0, 1}}, {{2, 3, 3}, {0, 0, 1}}, 6},
      {{1, 3, 4}, {{5, 3, 4}, {4, 0, 0}}, {{1, 6, 4}, {0, 3, 0}}, 1},
      {{0, 3}, {{4, 3}, {1, 0}}, {{0, 3}, {0, 0}}, 0},
      {{}, {{}, {}}, {{}, {}}, 1},
  };
  for (const Case& c : cases) {
    const auto a = counted(num_elements(c.a.shape));
    std::vector<float> b(static_cast<size_t>(num_elements(c.b.shape)), 0.0f);
    int64_t runs = 0;
    int64_t copied = 0;
    for_each_run(c.box, c.a, c.b, [&](int64_t in_a, int64_t in_b, int64_t count) {
      std::copy_n(a.begin() + in_a, count, b.begin() + in_b);
      ++runs;
      copied += count;
    });
    CHECK(runs == c.runs);
    CHECK(copied == num_elements(c.box));
    if (c.box.size() == 3) {
      for (int64_t i = 0; i < c.box[0]; ++i) {
        for (int64_t j = 0; j < c.box[1]; ++j) {
          for (int64_t k = 0; k < c.box[2]; ++k) {
            const auto at = [&](const BoxPlace& place) {
              return static_cast<size_t>(((place.start[0] + i) * place.shape[1] + place.start[1] + j) * place.shape[2] +
                                         place.start[2] + k);
            };
            CHECK(b[at(c.b)] == a[at(c.a)]);
          }
        }
      }
    }
  }
}

TEST_CASE("row reader: chunks of any shape give the rows of the array") {
  const testing::ScratchFolder folder;
  const Shape shape = {7, 3, 5};
  const auto values = counted(num_elements(shape));
  for (const Shape& chunk : {Shape{1, 3, 5}, {2, 3, 5}, {7, 3, 5}, {1, 1, 5}, {3, 2, 2}, {2, 4, 8}, {1, 1, 1}}) {
    CAPTURE(chunk[0]);
    CAPTURE(chunk[2]);
    const RowFile file = write_chunked(folder.file("chunked"), values, shape, chunk);
    const RowBox whole = RowBox::whole(file.layout);
    DirectRowReader reader({file});
    for (int64_t row = 0; row < 7; ++row) {
      std::vector<float> got(15, 0.0f);
      reader.read(std::vector<RowRead>{{0, row, got.data()}}, {&whole, 1}, {});
      CHECK(got == std::vector<float>(values.begin() + row * 15, values.begin() + (row + 1) * 15));
    }
  }
}

TEST_CASE("row reader: it tells of each byte of the boxes once, in their final place") {
  const testing::ScratchFolder folder;
  const Shape shape = {4, 3, 50'000};
  const auto values = counted(num_elements(shape));
  const std::vector<std::vector<RowBox>> wanted = {{{{0, 0}, {3, 50'000}, 0}},
                                                   {{{1, 0}, {2, 50'000}, 5}},
                                                   {{{0, 7}, {3, 11'000}, 0}},
                                                   {{{2, 0}, {1, 50'000}, 0}, {{0, 5}, {1, 9'000}, 50'000}},
                                                   {{{1, 3}, {1, 5}, 0}, {{0, 0}, {1, 50'000}, 9}}};
  for (const Shape& chunk :
       {Shape{1, 3, 50'000}, {1, 1, 50'000}, {2, 3, 50'000}, {1, 2, 50'000}, {2, 2, 50'000}, {1, 1, 16'000}}) {
    const RowFile plain = write_chunked(folder.file("plain"), values, shape, chunk);
    for (const RowFile& file : {plain, with_blosc(plain, folder.file("blosc"), 1 << 14)}) {
      DirectRowReader reader({file});
      for (const auto& boxes : wanted) {
        CAPTURE(chunk[0]);
        CAPTURE(chunk[1]);
        CAPTURE(boxes.size());
        std::vector<std::vector<float>> got(4, std::vector<float>(150'000, -1.0f)), expected = got;
        std::vector<RowRead> rows;
        for (int64_t row = 0; row < 4; ++row) {
          rows.push_back({0, row, got[static_cast<size_t>(row)].data()});
          for (const RowBox& box : boxes) {
            for (int64_t i = 0; i < box.num_values(); ++i) {
              const int64_t j = box.start[0] + i / box.size[1], k = box.start[1] + i % box.size[1];
              expected[static_cast<size_t>(row)][static_cast<size_t>(box.at + i)] =
                  2.0f * values[static_cast<size_t>((row * 3 + j) * 50'000 + k)];
            }
          }
        }
        reader.read(rows, boxes, [&](size_t read, int64_t first, int64_t count) {
          REQUIRE(first % 4 == 0);
          REQUIRE(count % 4 == 0);
          for (int64_t i = first / 4; i < (first + count) / 4; ++i) {
            got[read][static_cast<size_t>(i)] *= 2.0f;
          }
        });
        CHECK((got == expected));
      }
    }
  }
}

TEST_CASE("row reader: what is thrown by whom it tells passes as it is") {
  const testing::ScratchFolder folder;
  const RowFile plain = write_chunked(folder.file("plain"), counted(60'000), {1, 1, 60'000}, {1, 1, 60'000});
  const RowFile file = with_blosc(plain, folder.file("blosc"), 1 << 14);
  DirectRowReader reader({file});
  const RowBox whole = RowBox::whole(file.layout);
  std::vector<float> got(60'000);
  const std::string message = file.path + ": dataset 'x' is not finite";
  CHECK_THROWS_WITH_AS(
      reader.read(std::vector<RowRead>{{0, 0, got.data()}}, {&whole, 1},
                  [&](size_t, int64_t, int64_t) { throw Error(ErrorClass::kBadData, message, "repair"); }),
      Error(ErrorClass::kBadData, message, "repair").what(), Error);
}

TEST_CASE("row reader: more files than stay open, read by several threads at once") {
  const testing::ScratchFolder folder;
  constexpr int64_t kNumFiles = 3 * static_cast<int64_t>(kMostOpenFiles) + 1;
  std::vector<RowFile> files;
  for (int64_t f = 0; f < kNumFiles; ++f) {
    RowFile file{folder.file(std::to_string(f)), {}};
    file.layout.shape = {2, 3};
    file.layout.storage = ArrayLayout::Storage::kContiguous;
    file.layout.offset = 8 + f;
    const std::vector<float> values(6, static_cast<float>(f));
    PosixFile(file.path, PosixFile::Access::kCreate).write(file.layout.offset, values.data(), 24);
    files.push_back(std::move(file));
  }
  DirectRowReader reader(std::move(files));
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 600; ++i) {
        const int64_t file = (i * 31 + static_cast<int64_t>(t) * 7) % kNumFiles;
        std::vector<float> got(3, -1.0f);
        reader.read(std::vector<RowRead>{{file, i % 2, got.data()}}, std::vector<RowBox>{{{0}, {3}}}, {});
        wrong[t] += got == std::vector<float>(3, static_cast<float>(file)) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("row reader: a file that ends too early or is gone") {
  const testing::ScratchFolder folder;
  RowFile file{folder.file("short"), {}};
  file.layout.shape = {2, 3};
  file.layout.storage = ArrayLayout::Storage::kContiguous;
  const std::vector<float> values(5, 1.0f);
  PosixFile(file.path, PosixFile::Access::kCreate).write(0, values.data(), 20);
  RowFile gone = file;
  gone.path = folder.file("gone");
  DirectRowReader reader({file, gone});
  std::vector<float> got(3);
  reader.read(std::vector<RowRead>{{0, 0, got.data()}}, std::vector<RowBox>{{{0}, {3}}}, {});
  const auto class_of = [&](int64_t number, int64_t row) {
    try {
      reader.read(std::vector<RowRead>{{number, row, got.data()}}, std::vector<RowBox>{{{0}, {3}}}, {});
    } catch (const Error& error) {
      return error.error_class();
    }
    return ErrorClass::kInternal;
  };
  CHECK(class_of(0, 1) == ErrorClass::kBadData);
  CHECK(class_of(1, 0) == ErrorClass::kMissingInput);
}

TEST_CASE("lru cache: the least recently used is dropped") {
  LruCache<int> cache(2);
  int made = 0;
  const auto get = [&](int64_t key) {
    return *cache.get(key, [&] {
      ++made;
      return std::make_shared<int>(static_cast<int>(key));
    });
  };
  for (const int64_t key : {1, 2, 1, 3, 1, 2}) {  // 3 drops 2, the last 2 drops 3
    CHECK(get(key) == key);
  }
  CHECK(made == 4);
}

TEST_CASE("layouts: packed and unpacked") {
  ArrayLayout layout;
  layout.shape = {3, 4, 5};
  layout.type = at::kDouble;
  layout.storage = ArrayLayout::Storage::kChunked;
  layout.opaque_because = "why";
  layout.file_bytes = int64_t{1} << 40;
  layout.offset = 7;
  layout.chunk = {1, 4, 5};
  layout.chunk_offsets = {10, 20, int64_t{1} << 35};
  layout.chunk_bytes = {7, 8, 9};
  layout.chunk_masks = {0, 1, 0};
  layout.filters = {2, 1};
  layout.is_virtual = true;
  layout.attribute = "a,b,c,d";
  const std::vector<ArrayLayout> layouts = {layout, ArrayLayout{}, layout};
  CHECK((unpack_layouts(pack_layouts(layouts)) == layouts));
  CHECK(layout.row_bytes() == 160);
  CHECK_THROWS_AS(unpack_layouts(pack_layouts(layouts).substr(0, 100)), Error);
}

}  // namespace vit_hybrid::data
