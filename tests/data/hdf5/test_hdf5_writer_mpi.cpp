// HDF5 files written by all ranks and read in every way: the same bytes, and one agreed error for every kind of damage.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "data/hdf5/hdf5_rows.h"
#include "data/hdf5/hdf5_writer.h"
#include "data/reading/row_source.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/partition.h"
#include "src/base/random.h"
#include "src/base/text.h"
#include "tests/support/contains.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/io_modes.h"
#include "tests/support/on_rank_0.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid::data {
namespace {

namespace fs = std::filesystem;
using testing::agreed_error;
using testing::contains;
using testing::counted;
using testing::kIoModes;
using testing::on_rank_0;
using testing::ScratchFolder;
using testing::write_hdf5_file;

// Every rank reads its own choice of rows, in disorder and some of them twice; the last rank reads none.
void check_random_rows(const comm::MpiGroup& group, const RowSource& source, const std::vector<at::Tensor>& expected) {
  const RandomStream stream(1, Purpose::kTest, static_cast<uint64_t>(group.rank()));
  const bool wants_none = group.size() > 1 && group.rank() == group.size() - 1;
  const int64_t num_reads = wants_none ? 0 : 3 + 2 * group.rank();
  const at::Tensor& first = expected.front();
  std::vector<int64_t> shape = first.sizes().vec();
  shape.front() = num_reads;
  const at::Tensor got = at::zeros(shape, first.scalar_type());
  std::vector<RowRead> rows;
  for (int64_t i = 0; i < num_reads; ++i) {
    const auto draw = static_cast<uint64_t>(i / 2 * 2);  // every second one is as the one before
    const auto file = static_cast<int64_t>(stream.below(expected.size(), 2 * draw));
    const auto num_rows = static_cast<uint64_t>(expected[static_cast<size_t>(file)].size(0));
    rows.push_back({file, static_cast<int64_t>(stream.below(num_rows, 2 * draw + 1)), got[i].data_ptr()});
  }
  source.read(rows);
  for (int64_t i = 0; i < num_reads; ++i) {
    const RowRead& row = rows[static_cast<size_t>(i)];
    CHECK(at::equal(got[i], expected[static_cast<size_t>(row.file)][row.row]));
  }
}

// Boxes of rows, told of as they arrive: every byte once.
void check_bands(const comm::MpiGroup& group, const RowSource& source, const std::vector<at::Tensor>& expected) {
  const auto all = expected.front().sizes();
  for (const Range& band : {Range{0, 1}, Range{1, 3}, Range{2, all[2]}, Range{1, 1}, Range{0, all[2]}}) {
    const at::Tensor got = at::zeros({4, all[1], band.size(), all[3]}, expected.front().scalar_type());
    std::vector<RowRead> rows;
    for (const auto& [file, row] : {std::pair{1, 1}, {0, 4}, {1, 1}, {0, group.rank() % 5}}) {
      rows.push_back({file, row, got[static_cast<int64_t>(rows.size())].data_ptr()});
    }
    std::vector<int64_t> told(rows.size(), 0);
    const auto repeats = source.read_once(rows, {{0, band.begin, 0}, {all[1], band.size(), all[3]}},
                                          [&](size_t read, int64_t, int64_t count) { told[read] += count; });
    REQUIRE(repeats.size() >= 1);
    for (const RowSource::Repeat& repeat : repeats) {
      CHECK(told[repeat.read] == 0);
      told[repeat.read] = told[repeat.of];
      got[static_cast<int64_t>(repeat.read)].copy_(got[static_cast<int64_t>(repeat.of)]);
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      const at::Tensor field = got[static_cast<int64_t>(i)];
      CHECK(told[i] == static_cast<int64_t>(field.nbytes()));
      const at::Tensor& file = expected[static_cast<size_t>(rows[i].file)];
      CHECK(at::equal(field, file[rows[i].row].narrow(1, band.begin, band.size())));
    }
  }
}

}  // namespace

TEST_CASE("hdf5: datasets written by all ranks are read back in every mode") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const at::Tensor fields = counted({11, 3, 4, 5});
  const at::Tensor matrix = counted({6, 9}, at::kDouble);
  const std::string path = folder.file("written.h5");
  {
    Hdf5Writer writer(group, path,
                      {{"fields", {11, 3, 4, 5}, at::kFloat, {{"channels", "u,v,h"}, {"seconds", 0.5}}},
                       {"deep/er/matrix", {6, 9}, at::kDouble},
                       {"empty", {0, 3}, at::kLong},
                       {"large", {1 << 15}, at::kFloat},
                       {"scalar", {}, at::kInt}},
                      {{"years", int64_t{3}}, {"nothing", std::string()}});
    CHECK(!fs::exists(path));
    const Range rows = Partition(11, group.size()).part(group.rank());
    const std::vector<int64_t> start = {rows.begin, 0, 0, 0};
    writer.write("fields", start, fields.narrow(0, rows.begin, rows.size()));
    const Range columns = Partition(9, group.size()).part(group.rank());
    writer.write("deep/er/matrix", std::vector<int64_t>{0, columns.begin},
                 matrix.narrow(1, columns.begin, columns.size()).contiguous());
    if (group.rank() == 0) {
      writer.write("scalar", {}, at::full({}, 7, at::kInt));
    }
    writer.finish();
  }
  CHECK(fs::exists(path));
  CHECK(!fs::exists(temporary_name(path)));
  CHECK(at::equal(read_whole_dataset(path, "fields"), fields));
  CHECK(at::equal(read_whole_dataset(path, "deep/er/matrix"), matrix));
  CHECK(read_whole_dataset(path, "empty").size(0) == 0);
  CHECK(read_whole_dataset(path, "scalar").item<int>() == 7);
  const ArrayLayout layout = inspect_dataset(path, "fields", "channels");
  CHECK(layout.attribute == "u,v,h");
  CHECK(inspect_dataset(path, "large").offset % 4096 == 0);  // whole pages and blocks for whoever reads it
  CHECK((layout.storage == ArrayLayout::Storage::kContiguous));
  for (const IoMode mode : kIoModes) {
    const RowSource source(group, {path}, "fields", "channels", mode);
    check_random_rows(group, source, {fields});
  }
}

TEST_CASE("hdf5: a file that cannot be created, and one that is not finished") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const Error error = agreed_error(group, [&] {
    const Hdf5Writer writer(group, folder.file("no/folder/x.h5"), {{"a", {2}, at::kFloat}});
  });
  CHECK((error.error_class() == ErrorClass::kCannotCreate));
  CHECK(contains(error.what(), "no/folder/x.h5"));
  { const Hdf5Writer writer(group, folder.file("unfinished.h5"), {{"a", {2}, at::kFloat}}); }
  group.barrier();
  CHECK(!fs::exists(folder.file("unfinished.h5")));
  CHECK(!fs::exists(temporary_name(folder.file("unfinished.h5"))));
  CHECK_THROWS_AS(
      [&] {
        Hdf5Writer writer(group, folder.file("box.h5"), {{"a", {2}, at::kFloat}});
        writer.write("a", std::vector<int64_t>{1}, at::zeros({2}, at::kFloat));
      }(),
      Error);
  group.barrier();
}

TEST_CASE("hdf5: every layout gives the same rows in every mode") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const std::vector<at::Tensor> values = {counted({5, 3, 4, 6}), counted({2, 3, 4, 6}).neg()};
  struct Kind {
    const char* name;
    std::vector<int64_t> chunk;
    int gzip;
    testing::Stored stored;
    const char* why_opaque;
    bool shuffle = false;
    bool checksum = false;
    bool scale_offset = false;
  };
  for (const Kind& kind :
       {Kind{"contiguous", {}, 0, testing::Stored::kAsInMemory, ""},
        Kind{"rows", {1, 3, 4, 6}, 0, testing::Stored::kAsInMemory, ""},
        Kind{"odd", {2, 2, 3, 4}, 0, testing::Stored::kAsInMemory, ""},
        Kind{"gzip", {2, 3, 4, 6}, 4, testing::Stored::kAsInMemory, ""},
        Kind{"one", {1, 3, 4, 6}, 1, testing::Stored::kAsInMemory, ""},
        Kind{"parts", {2, 1, 3, 5}, 6, testing::Stored::kAsInMemory, "", true, true},
        Kind{"shuffled", {1, 3, 4, 6}, 0, testing::Stored::kAsInMemory, "", true},
        Kind{"summed", {2, 3, 4, 6}, 0, testing::Stored::kAsInMemory, "", false, true},
        Kind{"scaled", {1, 3, 4, 6}, 0, testing::Stored::kAsInMemory, "filter scaleoffset", false, false, true},
        Kind{"big", {}, 0, testing::Stored::kBigEndian, "must be converted"},
        Kind{"half", {1, 3, 2, 6}, 0, testing::Stored::kHalf, ""}}) {
    CAPTURE(std::string(kind.name));
    std::vector<at::Tensor> expected_values = values;
    for (at::Tensor& tensor : expected_values) {
      tensor = kind.stored == testing::Stored::kHalf ? tensor.to(at::kHalf) : tensor;
    }
    std::vector<std::string> paths;
    for (size_t i = 0; i < values.size(); ++i) {
      paths.push_back(folder.file(str(kind.name, i, ".h5")));
    }
    on_rank_0(group, [&] {
      for (size_t i = 0; i < values.size(); ++i) {
        write_hdf5_file(
            paths[i],
            {{"x", values[i], kind.chunk, kind.gzip, kind.stored, kind.shuffle, kind.checksum, kind.scale_offset}},
            {"a", "bc"});
      }
    });
    const bool is_opaque = *kind.why_opaque != '\0';
    for (const IoMode mode : kIoModes) {
      CAPTURE(io_mode_name(mode));
      if (is_opaque && mode == IoMode::kDirect) {
        const Error error = agreed_error(group, [&] { const RowSource source(group, paths, "x", "", mode); });
        CHECK((error.error_class() == ErrorClass::kUsage));
        CHECK(contains(error.what(), kind.why_opaque));
        continue;
      }
      const RowSource source(group, paths, "x", "channels", mode);
      const IoMode expected = mode != IoMode::kAuto ? mode : is_opaque ? IoMode::kIndependent : IoMode::kDirect;
      CHECK((source.mode() == expected));
      CHECK(source.background_reads() == (expected == IoMode::kDirect));
      CHECK(contains(source.mode_text(), mode == IoMode::kAuto ? kind.why_opaque : ""));
      CHECK(source.files().front().layout.attribute == "a,bc");
      check_random_rows(group, source, expected_values);
      check_random_rows(group, source, expected_values);  // the files stay open
      check_bands(group, source, expected_values);
    }
  }
}

TEST_CASE("hdf5: more files than stay open") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  std::vector<std::string> paths;
  std::vector<at::Tensor> values;
  for (size_t i = 0; i < kMostOpenFiles + 5; ++i) {
    paths.push_back(folder.file(str(i, ".h5")));
    values.push_back(counted({2, 3}).add(static_cast<double>(i)));
  }
  on_rank_0(group, [&] {
    for (size_t i = 0; i < paths.size(); ++i) {
      write_hdf5_file(paths[i], {{"x", values[i]}});
    }
  });
  at::Tensor got = at::zeros({3}, at::kFloat);
  for (const IoMode mode : {IoMode::kDirect, IoMode::kIndependent, IoMode::kCollective}) {
    const RowSource source(group, paths, "x", "", mode);
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t i = 0; i < paths.size(); ++i) {
        const int64_t row = (static_cast<int64_t>(i) + group.rank()) % 2;
        source.read({{static_cast<int64_t>(i), row, got.data_ptr()}});
        CHECK(at::equal(got, values[i][row]));
      }
    }
  }
}

TEST_CASE("hdf5: each kind of bad file is one error on all ranks") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const auto error_of = [&](const std::string& path, const std::string& dataset, IoMode mode) {
    return agreed_error(group, [&] { const RowSource source(group, {path}, dataset, "", mode); });
  };
  const std::string good = folder.file("good.h5");
  on_rank_0(group, [&] {
    write_hdf5_file(good, {{"x", counted({64, 512})}, {"other", counted({3})}, {"third", counted({3, 2})}});
    std::ofstream(folder.file("text.h5"))
        << "this is no HDF5 file, whatever its name says, and longer than a signature";
    std::ofstream(folder.file("empty.h5")).flush();
    for (const int64_t size : {100, 2048, 100000}) {
      fs::copy_file(good, folder.file(str("cut", size, ".h5")));
      fs::resize_file(folder.file(str("cut", size, ".h5")), static_cast<uintmax_t>(size));
    }
  });
  for (const IoMode mode : kIoModes) {
    for (const char* name : {"text.h5", "empty.h5", "cut100.h5", "cut2048.h5", "cut100000.h5"}) {
      const Error error = error_of(folder.file(name), "x", mode);
      CHECK((error.error_class() == ErrorClass::kBadData));
      CHECK(contains(error.what(), folder.file(name)));
    }
    const Error missing = error_of(folder.file("none.h5"), "x", mode);
    CHECK((missing.error_class() == ErrorClass::kMissingInput));
    CHECK(contains(missing.what(), "none.h5"));
    const Error folder_error = error_of(folder.path(), "x", mode);
    CHECK((folder_error.error_class() == ErrorClass::kMissingInput));
    const Error wrong_name = error_of(good, "field", mode);
    CHECK((wrong_name.error_class() == ErrorClass::kBadData));
    CHECK(contains(wrong_name.what(), "no dataset 'field'"));
    CHECK(contains(wrong_name.hint(), "datasets in it: other, third, x"));
  }
}

TEST_CASE("hdf5: a file that only one rank sees, or that differs") {
  const auto group = comm::MpiGroup::world();
  if (group.size() < 2) {
    MESSAGE("needs 2 ranks");
    return;
  }
  const ScratchFolder folder(group);
  on_rank_0(group, [&] {
    for (const char* name : {"first", "others"}) {
      fs::create_directory(folder.file(name));
    }
    write_hdf5_file(folder.file("first/a.h5"), {{"x", counted({4, 4})}});
    write_hdf5_file(folder.file("others/b.h5"), {{"x", counted({4, 4})}});
    write_hdf5_file(folder.file("first/c.h5"), {{"x", counted({4, 4})}});
    write_hdf5_file(folder.file("others/c.h5"), {{"x", counted({400, 4})}});
  });
  // The same relative path, seen from another folder.
  const fs::path before = fs::current_path();
  fs::current_path(folder.file(group.rank() == 0 ? "first" : "others"));
  for (const IoMode mode : kIoModes) {
    for (const char* name : {"a.h5", "b.h5"}) {
      const Error error = agreed_error(group, [&] { const RowSource source(group, {name}, "x", "", mode); });
      CHECK((error.error_class() == ErrorClass::kMissingInput));
      CHECK(contains(error.what(), name));
    }
    const Error error = agreed_error(group, [&] { const RowSource source(group, {"c.h5"}, "x", "", mode); });
    CHECK((error.error_class() == ErrorClass::kBadData));
    CHECK(contains(error.what(), "on rank 0"));
  }
  fs::current_path(before);
}

}  // namespace vit_hybrid::data
