// Copies of data on each node: the same bytes as the originals, only what is needed, and nothing left behind.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>

#include "data/datasets/weather_dataset.h"
#include "data/reading/row_source.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRows = 6;

at::Tensor staged_values(int64_t file) {
  const int64_t count = kRows * 2 * 300 * 40;
  return at::arange(count, at::kFloat).add(static_cast<double>(file)).reshape({kRows, 2, 300, 40});
}

void write_files(const comm::MpiGroup& group, const std::vector<std::string>& paths, const std::vector<int64_t>& chunk,
                 int gzip) {
  if (group.rank() == 0) {
    for (size_t i = 0; i < paths.size(); ++i) {
      testing::write_hdf5_file(paths[i], {{"fields", staged_values(static_cast<int64_t>(i)), chunk, gzip}});
    }
  }
  group.barrier();
}

void check_row(const RowSource& source, int64_t file, int64_t row) {
  const at::Tensor got = at::zeros({2, 300, 40}, at::kFloat);
  source.read({{file, row, got.data_ptr()}});
  CHECK(at::equal(got, staged_values(file)[row]));
}

}  // namespace

TEST_CASE("staged files: read from the copies, which have no names, in every layout") {
  const auto group = comm::MpiGroup::world();
  struct Kind {
    std::vector<int64_t> chunk;
    int gzip;
  };
  for (const Kind& kind : {Kind{{}, 0}, Kind{{2, 2, 100, 40}, 0}, Kind{{1, 2, 300, 40}, 4}}) {
    const testing::ScratchFolder folder(group);
    const testing::ScratchFolder stage(group);
    const std::vector<std::string> paths = {folder.file("a.h5"), folder.file("b.h5"), folder.file("c.h5")};
    write_files(group, paths, kind.chunk, kind.gzip);
    RowSource source(group, paths, "fields", "", IoMode::kDirect);
    CHECK(source.mode_text().find("copied") == std::string::npos);
    check_row(source, 1, 1);
    source.stage(stage.path(), {kRows, 2, 0});
    CHECK(fs::is_empty(stage.path()));
    const std::string copied = str("copied to ", stage.path(), " of each node (");
    const size_t place = source.mode_text().find(copied);
    REQUIRE(place != std::string::npos);
    const int64_t bytes = std::stoll(source.mode_text().substr(place + copied.size()));
    int64_t all = 0;
    for (const std::string& path : paths) {
      all += static_cast<int64_t>(fs::file_size(path));
    }
    CHECK(bytes < all / 2);  // of 18 rows 8 are needed
    CHECK(bytes >= (kind.gzip > 0 ? all / 3 : 8 * source.files().front().layout.row_bytes()));
    group.barrier();
    if (group.rank() == 0) {  // what was copied is not read again
      fs::remove(paths[0]);
      fs::remove(paths[1]);
    }
    group.barrier();
    for (int64_t row = 0; row < kRows; ++row) {
      check_row(source, 0, row);
      check_row(source, 2, row);
    }
    check_row(source, 1, 0);
    check_row(source, 1, 1);
    group.barrier();
  }
  const testing::ScratchFolder folder(group);
  write_files(group, {folder.file("a.h5")}, {}, 0);
  for (const IoMode mode : {IoMode::kIndependent, IoMode::kCollective}) {
    RowSource source(group, {folder.file("a.h5")}, "fields", "", mode);
    CHECK(
        (testing::agreed_error(group, [&] { source.stage(folder.path(), {1}); }).error_class() == ErrorClass::kUsage));
  }
}

TEST_CASE("staged files: a data set with a limit") {
  const auto group = comm::MpiGroup::world();
  const testing::ScratchFolder folder(group);
  const testing::ScratchFolder stage(group);
  write_files(group, {folder.file("1990.h5"), folder.file("1991.h5"), folder.file("1992.h5")}, {}, 0);
  const auto open = [&](int64_t samples, const std::string& where) {
    return WeatherDataset(group, {.folder = folder.path(),
                                  .global_means = {},
                                  .global_stds = {},
                                  .stage_folder = where,
                                  .stage_samples = samples});
  };
  const WeatherDataset plain = open(0, "");
  const WeatherDataset staged = open(7, stage.path());  // a file of 5 pairs and 2 pairs of the next
  CHECK(staged.size() == 15);
  for (int64_t sample = 0; sample < 7; ++sample) {
    const std::vector<int64_t> samples = {sample};
    CHECK(at::equal(staged.read(samples, {}, 0).inputs, plain.read(samples, {}, 0).inputs));
    CHECK(at::equal(staged.read(samples, {}, 0).targets, plain.read(samples, {}, 0).targets));
  }
  CHECK(staged.io_text().find("copied to") != std::string::npos);
}

TEST_CASE("staged files: too little space, no folder, and what cannot be copied are one error on all ranks") {
  const auto group = comm::MpiGroup::world();
  const testing::ScratchFolder folder(group);
  const testing::ScratchFolder stage(group);
  const std::string path = folder.file("large");
  const int64_t bytes = int64_t{1} << 40;  // sparse
  const int64_t too_much = int64_t{1} << 52;
  if (group.rank() == 0) {
    PosixFile(path, PosixFile::Access::kCreate).close();
    fs::resize_file(path, static_cast<uintmax_t>(bytes));
  }
  group.barrier();
  const auto error_of = [&](const std::vector<FileToStage>& files, const std::string& where) {
    return testing::agreed_error(group, [&] { const StagedFiles staged(group, files, where); });
  };
  const Error space = error_of({{path, too_much}}, stage.path());
  CHECK((space.error_class() == ErrorClass::kCannotCreate));
  CHECK(std::string(space.what()).find(str(too_much, " bytes are needed, ")) != std::string::npos);
  CHECK((error_of({{path, 10}}, stage.file("none")).error_class() == ErrorClass::kCannotCreate));
  CHECK((error_of({{folder.file("gone"), 10}}, stage.path()).error_class() == ErrorClass::kMissingInput));
  const Error short_file = error_of({{path, bytes + 10, {{0, bytes}}}}, stage.path());
  CHECK((short_file.error_class() == ErrorClass::kBadData));
  CHECK(std::string(short_file.what()).find(path) != std::string::npos);
  CHECK(fs::is_empty(stage.path()));
  // Of a sparse file of a terabyte, ten bytes are copied.
  const StagedFiles staged(group, {{path, bytes, {{0, 100}, {110, bytes}}}}, stage.path());
  CHECK(staged.bytes() == 10);
  CHECK(fs::file_size(staged.path(0)) == static_cast<uintmax_t>(bytes));
  group.barrier();
}

}  // namespace vit_hybrid::data
