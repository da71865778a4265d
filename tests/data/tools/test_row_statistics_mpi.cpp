// data stats and data inspect: closed forms, the same numbers from any number of ranks, and missing values.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "data/datasets/npy.h"
#include "data/tools/inspect_files.h"
#include "data/tools/row_statistics.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/text.h"
#include "tests/support/contains.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/in_groups.h"
#include "tests/support/on_rank_0.h"
#include "tests/support/scaled_file.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid::data {
namespace {

namespace fs = std::filesystem;
using testing::agreed_error;
using testing::contains;
using testing::file_bytes;
using testing::on_rank_0;
using testing::ScratchFolder;

// x(t, c, i) = 1000 c + 50 t + i.
constexpr int64_t kCells = 20;
at::Tensor ramp(int64_t first_time, int64_t num_times) {
  const at::Tensor times = at::arange(first_time, first_time + num_times, at::kFloat).reshape({-1, 1, 1, 1}) * 50.0;
  const at::Tensor channels = at::arange(3, at::kFloat).reshape({1, -1, 1, 1}) * 1000.0;
  return times + channels + at::arange(kCells, at::kFloat).reshape({1, 1, 4, 5});
}

std::string inspect(const comm::MpiGroup& group, const InspectOptions& options) {
  std::string text;
  inspect_files(group, options, [&](const std::string& part) { text += part; });
  return group.broadcast(text, 0);
}

}  // namespace

TEST_CASE("data stats: a closed form, from any number of ranks") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  fs::create_directories(folder.file("train"));
  const int64_t num_times = 23;
  on_rank_0(group, [&] {
    testing::write_hdf5_file(folder.file("train/1990.h5"), {{"fields", ramp(0, 10)}}, {"a", "b", "c"});
    testing::write_hdf5_file(folder.file("train/1991.h5"), {{"fields", ramp(10, 13), {2, 3, 4, 5}, 3}},
                             {"a", "b", "c"});
  });
  testing::in_groups(group, [&](const comm::MpiGroup& part, const std::string& name) {
    WriteStatsOptions options;
    options.inputs = {folder.file("train")};
    options.out = folder.file(name);
    options.time_means = true;
    const WrittenStats stats = write_stats(part, options);
    CHECK(stats.num_samples == num_times);
    CHECK((stats.channel_names == std::vector<std::string>{"a", "b", "c"}));
    const auto t = static_cast<double>(num_times);
    const auto n = static_cast<double>(kCells);
    const double deviation = std::sqrt(2500.0 * (t * t - 1.0) / 12.0 + (n * n - 1.0) / 12.0);
    for (int64_t c = 0; c < 3; ++c) {
      const ChannelMoments& channel = stats.channels[static_cast<size_t>(c)];
      const double mean = 1000.0 * static_cast<double>(c) + 25.0 * (t - 1.0) + (n - 1.0) / 2.0;
      CHECK(std::abs(channel.mean - mean) <= 1e-12 * std::abs(mean));
      CHECK(std::abs(channel.deviation() - deviation) <= 1e-12 * deviation);
      CHECK(read_npy(folder.file(name + "/global_means.npy"))[0][c].item<float>() == static_cast<float>(mean));
      CHECK(read_npy(folder.file(name + "/global_stds.npy"))[0][c].item<float>() == static_cast<float>(deviation));
    }
    const at::Tensor time_means = read_npy(folder.file(name + "/time_means.npy"));
    CHECK(at::equal(time_means, ramp(11, 1)));  // the middle time
  });
  for (const char* file : {"global_means.npy", "global_stds.npy", "time_means.npy"}) {
    CHECK((file_bytes(folder.file(str("one/", file))) == file_bytes(folder.file(str("all/", file)))));
    if (group.size() > 1) {
      CHECK((file_bytes(folder.file(str("rest/", file))) == file_bytes(folder.file(str("all/", file)))));
    }
  }
  CHECK((read_npy(folder.file("all/global_means.npy")).sizes() == at::IntArrayRef({1, 3, 1, 1})));
  CHECK((read_npy(folder.file("all/time_means.npy")).sizes() == at::IntArrayRef({1, 3, 4, 5})));
  group.barrier();
}

TEST_CASE("data stats: increments over a lead, none across a gap in the times, from any number of ranks") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  fs::create_directories(folder.file("train"));
  // x(t, c, i) = (c + 1) t^2 + i.
  const auto squares = [](int64_t first_time, int64_t num_times) {
    const at::Tensor times = at::arange(first_time, first_time + num_times, at::kFloat).reshape({-1, 1, 1, 1});
    const at::Tensor channels = at::arange(1, 4, at::kFloat).reshape({1, -1, 1, 1});
    return at::Tensor(times * times * channels + at::arange(kCells, at::kFloat).reshape({1, 1, 4, 5}));
  };
  on_rank_0(group, [&] {
    const char* const units = "hours since 1990-01-01";
    testing::write_scaled_file(folder.file("train/1990.h5"), squares(0, 6), {"a", "b", "c"}, {0, 6, 12, 24, 30, 36}, {},
                               units);
    testing::write_scaled_file(folder.file("train/1991.h5"), squares(6, 4), {"a", "b", "c"}, {8760, 8766, 8772, 8778},
                               {}, units);
  });
  struct Case {
    Lead lead;
    std::vector<double> increments;  // of the first channel
  };
  const std::vector<Case> cases = {{{.rows = 1}, {1, 3, 7, 9, 13, 15, 17}},
                                   {{.rows = 2}, {4, 16, 28, 32}},
                                   {{.rows = 1, .hours = 12}, {4, 16, 28, 32}}};
  for (const Case& one : cases) {
    double mean = 0.0, variance = 0.0;
    const auto count = static_cast<double>(one.increments.size());
    for (const double x : one.increments)
      mean += x / count;
    for (const double x : one.increments)
      variance += (x - mean) * (x - mean) / count;
    testing::in_groups(group, [&](const comm::MpiGroup& part, const std::string& name) {
      WriteStatsOptions options;
      options.inputs = {folder.file("train")};
      options.out = folder.file(name);
      options.increments = options.overwrite = true;
      options.lead = one.lead;
      const WrittenStats stats = write_stats(part, options);
      CHECK(stats.lead.hours == static_cast<double>(6 * stats.lead.rows));
      CHECK(stats.increments.front().count == std::ssize(one.increments) * kCells);
      CHECK_NOTHROW(require_increment_lead(options.out, stats.lead));
      CHECK_NOTHROW(require_increment_lead(options.out, {.rows = stats.lead.rows}));  // of data without dates
      CHECK_THROWS_AS(require_increment_lead(options.out, {.rows = 1, .hours = stats.lead.hours + 6.0}), Error);
      const at::Tensor means = read_npy(folder.file(name + "/time_diff_means.npy"));
      const at::Tensor deviations = read_npy(folder.file(name + "/time_diff_stds.npy"));
      CHECK((means.sizes() == at::IntArrayRef({1, 3, 1, 1})));
      for (int64_t c = 0; c < 3; ++c) {
        const auto factor = static_cast<double>(c + 1);
        CHECK(means[0][c].item<double>() == doctest::Approx(factor * mean).epsilon(1e-7));
        CHECK(deviations[0][c].item<double>() == doctest::Approx(factor * std::sqrt(variance)).epsilon(1e-7));
      }
    });
    for (const char* file : {"time_diff_means.npy", "time_diff_stds.npy", "global_stds.npy"}) {
      CHECK((file_bytes(folder.file(str("one/", file))) == file_bytes(folder.file(str("all/", file)))));
    }
    group.barrier();
  }
  WriteStatsOptions options;
  options.inputs = {folder.file("train")};
  options.out = folder.file("all");
  options.overwrite = true;
  const Error stale = agreed_error(group, [&] { write_stats(group, options); });
  CHECK(contains(stale.what(), "also holds time_diff_means.npy, which would not be replaced; give --increments"));
  options.increments = true;
  options.lead = {.rows = 4};
  const Error none = agreed_error(group, [&] { write_stats(group, options); });
  CHECK(contains(none.what(), "holds no pair of times that are 4 rows (24 hours) apart"));
  group.barrier();
}

TEST_CASE("data stats: missing values are refused by name, or left out and counted") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  fs::create_directories(folder.file("train"));
  on_rank_0(group, [&] {
    at::Tensor holed = ramp(0, 9);
    holed[6][1][2][3] = std::numeric_limits<float>::quiet_NaN();
    holed[7][2][0][0] = -std::numeric_limits<float>::infinity();
    testing::write_hdf5_file(folder.file("train/2000.h5"), {{"fields", holed}});
  });
  WriteStatsOptions options;
  options.inputs = {folder.file("train")};
  options.out = folder.file("stats");
  options.time_means = true;
  const Error error = agreed_error(group, [&] { write_stats(group, options); });
  CHECK((error.error_class() == ErrorClass::kBadData));
  // Where several ranks meet missing values, the lowest one speaks; it has the earlier time.
  CHECK_MESSAGE(
      contains(error.what(), "2000.h5: dataset 'fields' is not finite (nan) at time 6, channel 1, element 13"),
      error.what());
  CHECK(!fs::exists(folder.file("stats/global_means.npy")));
  group.barrier();
  options.skip_missing = true;
  const WrittenStats stats = write_stats(group, options);
  CHECK(stats.channels[0].num_missing() == 0);
  CHECK(stats.channels[1].num_nan == 1);
  CHECK(stats.channels[2].num_infinite == 1);
  const double sum = 9.0 * kCells * (1000.0 + 200.0 + 9.5) - (1000.0 + 300.0 + 13.0);
  CHECK(stats.channels[1].mean == doctest::Approx(sum / (9.0 * kCells - 1.0)).epsilon(1e-14));
  const at::Tensor time_means = read_npy(folder.file("stats/time_means.npy"));
  CHECK(time_means[0][1][2][3].item<float>() == 1000.0f + 13.0f + 50.0f * 30.0f / 8.0f);
  group.barrier();
}

TEST_CASE("data stats: what is refused") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  for (const char* name : {"flat", "ints", "differ", "huge", "good"}) {
    fs::create_directories(folder.file(name));
  }
  on_rank_0(group, [&] {
    testing::write_hdf5_file(folder.file("flat/1990.h5"), {{"fields", ramp(0, 3).mul(0.0)}});
    testing::write_hdf5_file(folder.file("ints/1990.h5"), {{"fields", ramp(0, 3).to(at::kInt)}});
    testing::write_hdf5_file(folder.file("differ/1990.h5"), {{"fields", ramp(0, 3)}});
    testing::write_hdf5_file(folder.file("differ/1991.h5"), {{"fields", ramp(0, 3).narrow(3, 0, 4).contiguous()}});
    testing::write_hdf5_file(folder.file("huge/1990.h5"), {{"fields", ramp(0, 3).to(at::kDouble).mul(1e200)}});
    testing::write_hdf5_file(folder.file("good/1990.h5"), {{"fields", ramp(0, 3)}});
  });
  const auto refused = [&](const char* name, ErrorClass error_class, const std::string& text) {
    WriteStatsOptions options;
    options.inputs = {folder.file(name)};
    options.out = folder.file("stats");
    const Error error = agreed_error(group, [&] { write_stats(group, options); });
    CHECK((error.error_class() == error_class));
    CHECK_MESSAGE(contains(error.what(), text), error.what());
    group.barrier();
  };
  refused("flat", ErrorClass::kBadData, "channel 0 (c00) is constant (0)");
  refused("ints", ErrorClass::kBadData, "is no field");
  refused("differ", ErrorClass::kBadData, "differs from that of");
  refused("none", ErrorClass::kMissingInput, "none");
  refused("huge", ErrorClass::kBadData, "whose deviation no float32 holds");
  CHECK_FALSE((group.rank() == 0 && fs::exists(folder.file("stats"))));  // of refused work nothing is left
  WriteStatsOptions options;
  options.inputs = {folder.file("good")};
  options.out = folder.file("stats");
  write_stats(group, options);
  refused("good", ErrorClass::kCannotCreate, "global_means.npy' is there already");
  options.overwrite = true;
  options.time_means = true;
  write_stats(group, options);
  options.time_means = false;  // the old ones would stay
  const Error stale = agreed_error(group, [&] { write_stats(group, options); });
  CHECK_MESSAGE(contains(stale.what(), "also holds time_means.npy, which would not be replaced"), stale.what());
  group.barrier();
  on_rank_0(group, [&] {
    for (const auto& entry : fs::directory_iterator(options.out)) {
      CHECK_MESSAGE(entry.path().extension() == ".npy", entry.path());
    }
    fs::remove(options.out + "/global_stds.npy");
    fs::create_symlink("global_stds.npy", options.out + "/global_stds.npy");
  });
  options.time_means = true;
  const Error loop = agreed_error(group, [&] { write_stats(group, options); });
  CHECK((loop.error_class() == ErrorClass::kCannotCreate));
  group.barrier();
}

TEST_CASE("data inspect: layout, cost, values and the command that repacks") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  on_rank_0(group, [&] {
    at::Tensor fields = ramp(0, 8).narrow(1, 0, 2).contiguous();
    fields[3][1][0][0] = std::numeric_limits<float>::quiet_NaN();
    testing::write_scaled_file(folder.file("scaled.h5"), fields, {"u", "v"});
    testing::write_hdf5_file(folder.file("plain.h5"), {{"fields", ramp(0, 8)}, {"labels", at::arange(5, at::kLong)}},
                             {"x", "y", "z"});
  });
  const std::string scaled = inspect(group, {{folder.file("scaled.h5")}, 2, 2, true});
  for (const char* part :
       {"fields (8, 2, 4, 5), 32-bit float, little-endian", "chunks (2, 2, 4, 5), filters deflate",
        "yes, 4 chunks, inflated after reading", "dims:       time, channel, lat, lon", "channels:   u,v",
        "attribute:  units = m/s,m/s", "one sample of 160 bytes = 1 read, 2.00 x the bytes wanted",
        "latitude band 0 of 2 of 80 bytes = 1 read, 4.00 x the bytes wanted", "all 8 rows",
        "slow:       a sample needs 2.00 times its bytes", "vit_hybrid data repack "}) {
    CHECK_MESSAGE(contains(scaled, part), part);
  }
  // u: 50 t + i; v: 1000 more, with one value missing.
  CHECK(contains(scaled, "    u                    0            369          184.5"));
  CHECK(contains(scaled, "          1          0\n"));
  const std::string plain = inspect(group, {{folder.path()}, 2, 2});
  for (const char* part :
       {"plain.h5: ", "scaled.h5: ", "contiguous, 1.88 KiB", "yes, all values lie together from byte ",
        "one sample of 240 bytes = 1 read, 1.00 x", "= 3 reads, 1.00 x", "2 of 8 rows", "labels (5), 64-bit integer"}) {
    CHECK_MESSAGE(contains(plain, part), part);
  }
  // Names that are empty, or of more lines than one, are names like others, and shown in one line.
  on_rank_0(group, [&] {
    testing::write_hdf5_file(folder.file("unnamed.h5"), {{"fields", ramp(0, 8)}}, {"", "y\nz", ""});
  });
  CHECK(contains(inspect(group, {{folder.file("unnamed.h5")}}), "    y\\nz              1000"));
  const std::string all = testing::file_bytes(folder.file("plain.h5"));
  const Error error = agreed_error(group, [&] { inspect(group, {{folder.file("none.h5")}}); });
  CHECK((error.error_class() == ErrorClass::kMissingInput));
  on_rank_0(group, [&] { fs::resize_file(folder.file("plain.h5"), all.size() / 2); });
  const Error cut = agreed_error(group, [&] { inspect(group, {{folder.file("plain.h5")}}); });
  CHECK((cut.error_class() == ErrorClass::kBadData));
  CHECK(contains(cut.what(), "plain.h5"));
  group.barrier();
}

}  // namespace vit_hybrid::data
