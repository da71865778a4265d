// HDF5 files that are out of the ordinary: virtual, locked, read with hints, damaged in a chunk.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "data/hdf5/hdf5_open.h"
#include "data/hdf5/hdf5_scales.h"
#include "data/reading/row_source.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "tests/support/contains.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/in_groups.h"
#include "tests/support/io_modes.h"
#include "tests/support/on_rank_0.h"
#include "tests/support/scaled_file.h"
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

// All rows, on every rank beginning with another one.
void check_rows(const comm::MpiGroup& group, const RowSource& source, const at::Tensor& expected) {
  const at::Tensor got = at::zeros_like(expected);
  std::vector<RowRead> rows;
  for (int64_t i = 0; i < expected.size(0); ++i) {
    const int64_t row = (i + group.rank()) % expected.size(0);
    rows.push_back({0, row, got[row].data_ptr()});
  }
  source.read(rows);
  CHECK(at::equal(got, expected));
}

}  // namespace

TEST_CASE("hdf5: virtual datasets are read with the default driver, and not without their sources") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const at::Tensor values = counted({6, 2, 3});
  const std::string path = folder.file("virtual.h5");
  on_rank_0(group, [&] {
    for (int i = 0; i < 2; ++i) {
      write_hdf5_file(folder.file(str("source", i, ".h5")), {{"x", values.narrow(0, 3 * i, 3)}});
    }
    testing::write_virtual_file(path, "x", {"source0.h5", "source1.h5"}, {3, 2, 3});
  });
  for (const IoMode mode : {IoMode::kAuto, IoMode::kIndependent}) {
    const RowSource source(group, {path}, "x", "", mode);
    CHECK((source.mode() == IoMode::kIndependent));
    CHECK(
        contains(source.mode_text(), mode == IoMode::kAuto ? "virtual storage, read with HDF5's default driver" : ""));
    check_rows(group, source, values);
  }
  const auto error_of = [&](IoMode mode) {
    return agreed_error(group, [&] { const RowSource source(group, {path}, "x", "", mode); });
  };
  for (const IoMode mode : {IoMode::kDirect, IoMode::kCollective}) {
    CHECK((error_of(mode).error_class() == ErrorClass::kUsage));
    CHECK(contains(error_of(mode).what(), "virtual"));
  }
  on_rank_0(group, [&] { fs::remove(folder.file("source1.h5")); });
  CHECK((error_of(IoMode::kAuto).error_class() == ErrorClass::kMissingInput));
  CHECK(contains(error_of(IoMode::kAuto).what(), "source1.h5"));
}

TEST_CASE("hdf5: virtual datasets that are made of themselves, or of each other without measure, are refused at once") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const at::Tensor values = counted({3, 2, 3});
  constexpr int kChain = 12;
  on_rank_0(group, [&] {
    const auto made_of = [&](const std::string& name, const std::vector<std::string>& sources) {
      testing::write_virtual_file(folder.file(name), "x", sources, {3, 2, 3});
    };
    made_of("self.h5", {500, "self.h5"});
    made_of("ring0.h5", {"ring1.h5"});
    made_of("ring1.h5", {"ring0.h5"});
    write_hdf5_file(folder.file("chain0.h5"), {{"x", values}});
    for (int i = 1; i <= kChain; ++i) {
      made_of(str("chain", i, ".h5"), {str("chain", i - 1, ".h5")});
    }
    // Without an end if each part were looked at as often as it is named.
    made_of("often0.h5", {30, "chain0.h5"});
    for (int i = 1; i < 6; ++i) {
      testing::write_virtual_file(folder.file(str("often", i, ".h5")), "x", {30, str("often", i - 1, ".h5")},
                                  {1, 2, 3});
    }
  });
  const auto error_of = [&](const std::string& name) {
    return agreed_error(group, [&] { const RowSource source(group, {folder.file(name)}, "x", "", IoMode::kAuto); });
  };
  for (const auto& [name, text] : {std::pair{"self.h5", "self.h5: dataset 'x' is virtual and made of itself"},
                                   {"ring0.h5", "ring0.h5: dataset 'x' is virtual and made of itself"},
                                   {"chain12.h5", "chain4.h5: dataset 'x' is the last of 8 virtual datasets"}}) {
    const Error error = error_of(name);
    CHECK((error.error_class() == ErrorClass::kBadData));
    CHECK_MESSAGE(contains(error.what(), text), error.what());
  }
  check_rows(group, RowSource(group, {folder.file("chain7.h5")}, "x", "", IoMode::kAuto), values);
  CHECK(RowSource(group, {folder.file("often5.h5")}, "x", "", IoMode::kAuto).files().front().layout.is_virtual);
}

TEST_CASE("hdf5: a list of names and a compressed chunk that take too much memory are refused before they are read") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const at::Tensor large = at::zeros({1, 1, 1}).expand({40000, 64, 64});  // 625 MiB, of which nothing is written
  on_rank_0(group, [&] {
    write_hdf5_file(folder.file("names.h5"), {{"x", counted({6, 2, 3})}}, {300, std::string(60000, 'c')});
    for (const bool is_foreign : {false, true}) {
      write_hdf5_file(folder.file(is_foreign ? "foreign.h5" : "gzip.h5"), {{.name = "x",
                                                                            .values = large,
                                                                            .chunk = {40000, 64, 64},
                                                                            .gzip = 1,
                                                                            .scale_offset = is_foreign,
                                                                            .rows_written = 0}});
    }
    testing::write_virtual_file(folder.file("virtual.h5"), "x", {"gzip.h5"}, {40000, 64, 64});
  });
  const std::string chunks =
      "dataset 'x' is compressed in chunks of shape (40000, 64, 64), 625 MiB each, more than 512 MiB";
  for (const auto& [name, text] : {std::pair<std::string, std::string>{
                                       "names.h5", "names.h5: attribute 'channels' takes more than 16.0 MiB in memory"},
                                   {"gzip.h5", chunks + "; "},
                                   {"foreign.h5", chunks},
                                   {"virtual.h5", "gzip.h5: " + chunks}}) {
    const std::string path = folder.file(name);
    const Error error =
        agreed_error(group, [&] { const RowSource source(group, {path}, "x", "channels", IoMode::kAuto); });
    CHECK((error.error_class() == ErrorClass::kBadData));
    CHECK_MESSAGE(contains(error.what(), text), error.what());
  }
}

TEST_CASE("hdf5: values that were never written are not made up") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const at::Tensor values = counted({6, 2, 3});
  const auto written = [&](const std::string& name, const testing::TestDataset& dataset) {
    on_rank_0(group, [&] { write_hdf5_file(folder.file(name), {dataset}); });
  };
  const auto error_of = [&](const std::string& name, IoMode mode) {
    return agreed_error(group, [&] { const RowSource source(group, {folder.file(name)}, "x", "", mode); });
  };
  written("none.h5", {.name = "x", .values = values, .rows_written = 0});
  written("none_be.h5", {.name = "x", .values = values, .stored = testing::Stored::kBigEndian, .rows_written = 0});
  written("chunks.h5", {.name = "x", .values = values, .chunk = {2, 2, 3}, .rows_written = 3});
  written("filtered.h5", {.name = "x", .values = values, .chunk = {1, 1, 3}, .gzip = 1, .rows_written = 4});
  written("opaque.h5", {.name = "x", .values = values, .chunk = {1, 2, 3}, .scale_offset = true, .rows_written = 4});
  written("source0.h5", {.name = "x", .values = values.narrow(0, 0, 3)});
  written("source1.h5", {.name = "x", .values = values.narrow(0, 0, 3), .rows_written = 0});
  written("other.h5", {.name = "y", .values = values.narrow(0, 0, 3)});
  on_rank_0(group, [&] {
    testing::write_virtual_file(folder.file("virtual.h5"), "x", {"source0.h5", "source1.h5"}, {3, 2, 3});
    testing::write_virtual_file(folder.file("lacking.h5"), "x", {"source0.h5", "other.h5"}, {3, 2, 3});
  });
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"none.h5", "all of it"},
      {"none_be.h5", "all of it"},
      {"chunks.h5", "1 of its 3 chunks, from row 4"},
      {"filtered.h5", "4 of its 12 chunks, from row 4"},
      {"opaque.h5", "2 of its 6 chunks"},
      {"virtual.h5", "all of it in " + folder.file("source1.h5")},
      {"lacking.h5", "other.h5 has no dataset 'x'"},
  };
  for (const auto& [file, text] : cases) {
    const std::string name = file;  // what a lambda may capture
    for (const IoMode mode : {IoMode::kAuto, IoMode::kIndependent}) {
      CAPTURE(name);
      const Error error = error_of(name, mode);
      CHECK((error.error_class() == ErrorClass::kBadData));
      CHECK_MESSAGE(contains(error.what(), text), error.what());
    }
  }
}

TEST_CASE("hdf5: a dataset behind an external link is read from the file that it lies in") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const at::Tensor values = counted({6, 2, 3});
  const std::string path = folder.file("linking.h5");
  on_rank_0(group, [&] {
    write_hdf5_file(folder.file("target.h5"), {{"x", values}});
    // Values where the target's would be, if their place were looked for in the wrong file.
    write_hdf5_file(path, {{"other", at::zeros({1000})}});
    testing::add_external_link(path, "x", "target.h5");
  });
  for (const IoMode mode : {IoMode::kAuto, IoMode::kIndependent, IoMode::kCollective}) {
    const RowSource source(group, {path}, "x", "", mode);
    CHECK((mode != IoMode::kAuto || source.mode() == IoMode::kIndependent));
    CHECK((mode != IoMode::kAuto || contains(source.mode_text(), "a link to ")));
    check_rows(group, source, values);
  }
  const Error error = agreed_error(group, [&] { const RowSource source(group, {path}, "x", "", IoMode::kDirect); });
  CHECK((error.error_class() == ErrorClass::kUsage));
  CHECK(contains(error.what(), "target.h5"));
}

TEST_CASE("hdf5: a locked file is read all the same") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const std::string path = folder.file("locked.h5");
  const at::Tensor values = counted({4, 3});
  on_rank_0(group, [&] { write_hdf5_file(path, {{"x", values}}); });
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(descriptor >= 0);
  const bool is_locked = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  CHECK(group.sum(is_locked ? 1 : 0) == 1);  // one of the ranks has it
  for (const IoMode mode : kIoModes) {
    const RowSource source(group, {path}, "x", "", mode);
    check_rows(group, source, values);
  }
  group.barrier();
  ::close(descriptor);
}

TEST_CASE("hdf5: hints for MPI-IO change no byte") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const std::string path = folder.file("hints.h5");
  const at::Tensor values = counted({7, 2, 3});
  on_rank_0(group, [&] { write_hdf5_file(path, {{"x", values}}); });
  const MpiIoHints hints = {{"cb_buffer_size", "65536"}, {"romio_cb_read", "enable"}, {"of_nobody", "7"}};
  const RowSource source(group, {path}, "x", "", IoMode::kCollective, hints);
  check_rows(group, source, values);
}

TEST_CASE("hdf5: damaged chunks are named") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const std::string path = folder.file("x.h5");
  at::Tensor got = at::zeros({8, 32}, at::kFloat);
  const auto error_of_row = [&](const RowSource& source, int64_t row) {
    try {
      source.read({{0, row, got.data_ptr()}});
    } catch (const Error& error) {
      return error;
    }
    return Error(ErrorClass::kInternal, "no error");
  };
  // Of row 3: bytes in the middle of its chunk are changed.
  for (const bool checksum : {false, true}) {
    on_rank_0(group, [&] {
      write_hdf5_file(path, {{"x", counted({5, 8, 32}), {1, 8, 32}, checksum ? 0 : 6, {}, true, checksum}});
      const ArrayLayout layout = inspect_dataset(path, "x");
      const PosixFile file(path, PosixFile::Access::kUpdate);
      const std::vector<char> noise(static_cast<size_t>(layout.chunk_bytes[3] / 2), '\x5a');
      file.write(layout.chunk_offsets[3] + 8, noise.data(), static_cast<int64_t>(noise.size()));
    });
    const RowSource source(group, {path}, "x", "", IoMode::kDirect);
    source.read({{0, 2, got.data_ptr()}});
    CHECK(at::equal(got, counted({5, 8, 32})[2]));
    const Error error = error_of_row(source, 3);
    CHECK((error.error_class() == ErrorClass::kBadData));
    CHECK(contains(error.what(), str(path, ": dataset 'x', row 3: the chunk of ")));
    CHECK(contains(error.what(), checksum ? "wrong Fletcher-32 checksum" : "corrupt deflate stream"));
    group.barrier();
  }
  // The file ends in the last chunk: seen when it is opened, and when it gets shorter afterwards.
  for (const int gzip : {0, 6}) {
    on_rank_0(group, [&] { write_hdf5_file(path, {{"x", counted({5, 8, 32}), {1, 8, 32}, gzip}}); });
    const ArrayLayout layout = inspect_dataset(path, "x");
    const RowSource source(group, {path}, "x", "", IoMode::kDirect);
    source.read({{0, 4, got.data_ptr()}});
    group.barrier();
    on_rank_0(group, [&] { fs::resize_file(path, static_cast<uintmax_t>(layout.chunk_offsets[4] + 5)); });
    const Error error = error_of_row(source, 4);
    CHECK((error.error_class() == ErrorClass::kBadData));
    CHECK(contains(error.what(), str(path, ": dataset 'x', row 4: ")));
    CHECK(contains(error.what(), " ends at byte "));
    const Error at_start = agreed_error(group, [&] { const RowSource again(group, {path}, "x", "", IoMode::kAuto); });
    CHECK((at_start.error_class() == ErrorClass::kBadData));
    CHECK(contains(at_start.what(), path));
  }
}

TEST_CASE("hdf5: scales whose list cannot be read any more are no copied ones") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  on_rank_0(group, [&] {
    const Hdf5ScaleCopy copy{folder.file("from.h5"), folder.file("to.h5"), "fields", 1, 2};
    testing::write_scaled_file(copy.from, counted({3, 2, 4, 5}), {"u10", "t850"});
    write_hdf5_file(copy.to, {{"fields", counted({2, 2, 4, 5})}});
    {
      const Hid file(H5Fopen(copy.from.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), &H5Fclose);
      REQUIRE(H5Adelete_by_name(file.get(), "fields", "DIMENSION_LABELS", H5P_DEFAULT) >= 0);  // texts beside the list
    }
    CHECK(copy_hdf5_scales(copy).empty());
    verify_hdf5_scales(copy);
    std::string bytes = testing::file_bytes(copy.to);
    for (size_t at = bytes.find("GCOL"); at != std::string::npos; at = bytes.find("GCOL")) {
      bytes[at] = 'X';
    }
    std::ofstream(copy.to, std::ios::binary) << bytes;
    const Error error = testing::thrown_error([&] { verify_hdf5_scales(copy); });
    CHECK((error.error_class() == ErrorClass::kIo));
    CHECK_MESSAGE(contains(error.what(), "'fields' is not read as it was written: the list of its scales"),
                  error.what());
  });
}

TEST_CASE("hdf5: coordinates beside fields are those of the fields' own file, and virtual ones are not made up") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  on_rank_0(group, [&] {
    const at::Tensor fields = counted({3, 2, 4, 5});
    const auto latitudes_of = [&](const char* name) {
      return inspect_dataset(folder.file(name), "fields", "channels").grid.latitudes;
    };
    write_hdf5_file(folder.file("own.h5"), {{"fields", fields}, {"lat", counted({4}) * 10.0}});
    write_hdf5_file(folder.file("linking.h5"), {{"lat", counted({4})}});
    testing::add_external_link(folder.file("linking.h5"), "fields", "own.h5");
    CHECK(latitudes_of("linking.h5") == std::vector<double>{0, 10, 20, 30});

    write_hdf5_file(folder.file("bare.h5"), {{"fields", fields}});
    write_hdf5_file(folder.file("part.h5"), {{"lat", counted({4})}});
    testing::write_virtual_file(folder.file("virtual.h5"), "lat", {"part.h5"}, {4});
    testing::add_external_link(folder.file("virtual.h5"), "fields", "bare.h5");
    CHECK(latitudes_of("virtual.h5") == std::vector<double>{0, 1, 2, 3});
    fs::remove(folder.file("part.h5"));
    const Error error = testing::thrown_error([&] { latitudes_of("virtual.h5"); });
    CHECK((error.error_class() == ErrorClass::kMissingInput));
    CHECK_MESSAGE(contains(error.what(), "'/lat' is virtual, and the file part.h5"), error.what());
  });
}

}  // namespace vit_hybrid::data
