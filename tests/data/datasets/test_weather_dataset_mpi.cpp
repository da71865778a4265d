// Weather data: pairs, normalization, limits, names, bad data, and loading by all ranks, in every way of reading.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <limits>
#include <set>

#include "data/datasets/npy.h"
#include "data/datasets/weather_dataset.h"
#include "data/loading/normalize.h"
#include "data/loading/sampler.h"
#include "data/reading/posix_file.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "tests/support/contains.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/io_modes.h"
#include "tests/support/on_rank_0.h"
#include "tests/support/scaled_file.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid::data {
namespace {

using vit_hybrid::testing::contains;

constexpr int64_t kChannels = 3;
constexpr int64_t kHeight = 5;
constexpr int64_t kWidth = 7;
double value_at(int64_t year, int64_t time, int64_t channel, int64_t row, int64_t column) {
  return static_cast<double>((year - 1900) * 100 + time * 10 + channel) + static_cast<double>(row) / 8.0 +
         static_cast<double>(column) / 128.0;  // exact in float32
}

double mean_of(int64_t channel) {
  return 1.5 * static_cast<double>(channel) - 1.0;
}
double std_of(int64_t channel) {
  return 0.25 * static_cast<double>(channel + 1);
}

at::Tensor year_values(int64_t year, int64_t num_times, at::ScalarType type) {
  at::Tensor values = at::empty({num_times, kChannels, kHeight, kWidth}, at::kDouble);
  auto* to = values.data_ptr<double>();
  for (int64_t time = 0; time < num_times; ++time) {
    for (int64_t channel = 0; channel < kChannels; ++channel) {
      for (int64_t row = 0; row < kHeight; ++row) {
        for (int64_t column = 0; column < kWidth; ++column) {
          *to++ = value_at(year, time, channel, row, column);
        }
      }
    }
  }
  return values.to(type);
}

// Years with 4, 1, 3 and 2 times: 3 + 0 + 2 + 1 pairs.
const std::vector<std::pair<int64_t, int64_t>> kYears = {{1990, 4}, {1991, 1}, {1993, 3}, {2001, 2}};
const std::vector<std::pair<int64_t, int64_t>> kPairs = {{1990, 0}, {1990, 1}, {1990, 2},
                                                         {1993, 0}, {1993, 1}, {2001, 0}};

struct Folder {
  explicit Folder(const comm::MpiGroup& mpi_group) : group(mpi_group), scratch(mpi_group) {}

  std::string year_path(int64_t year) const { return scratch.file(str("era5_", year, ".h5")); }
  WeatherOptions options() const {
    return {.folder = scratch.path(),
            .global_means = scratch.file("global_means.npy"),
            .global_stds = scratch.file("global_stds.npy")};
  }

  void write_year(int64_t year, const at::Tensor& values, int gzip = 0) const {
    testing::write_hdf5_file(
        year_path(year),
        {{"fields", values, gzip > 0 ? std::vector<int64_t>{1, kChannels, kHeight, kWidth} : std::vector<int64_t>{},
          gzip}},
        {"u", "v", "h"});
  }
  void write_stats(const std::vector<int64_t>& shape) const {
    at::Tensor means = at::empty({kChannels}, at::kFloat);
    at::Tensor stds = at::empty({kChannels}, at::kFloat);
    for (int64_t c = 0; c < kChannels; ++c) {
      means.data_ptr<float>()[c] = static_cast<float>(mean_of(c));
      stds.data_ptr<float>()[c] = static_cast<float>(std_of(c));
    }
    replace_npy({{scratch.file("global_means.npy"), means.reshape(shape)}});
    replace_npy({{scratch.file("global_stds.npy"), stds.reshape(shape)}});
  }
  void write_all(at::ScalarType type = at::kFloat, int gzip = 0) const {
    if (group.rank() == 0) {
      for (const auto& [year, num_times] : kYears) {
        write_year(year, year_values(year, num_times, type), gzip);
      }
      write_stats({1, kChannels, 1, 1});
    }
    group.barrier();
  }

  const comm::MpiGroup& group;
  testing::ScratchFolder scratch;
};

void check_field(const at::Tensor& field, int64_t year, int64_t time) {
  const at::Tensor all = field.contiguous();
  double worst = 0.0;
  for (int64_t e = 0; e < all.numel(); ++e) {
    const int64_t channel = e / (kHeight * kWidth);
    const double expected =
        (value_at(year, time, channel, e / kWidth % kHeight, e % kWidth) - mean_of(channel)) / std_of(channel);
    worst = std::max(worst, std::abs(all.const_data_ptr<float>()[e] - expected) / std::max(1.0, std::abs(expected)));
  }
  CHECK(worst < 1e-6);
}

Error error_of(const comm::MpiGroup& group, const WeatherOptions& options) {
  return testing::agreed_error(group, [&] { const WeatherDataset dataset(group, options); });
}

// As they are stored, values become those of `batch` when they are normalized.
void check_stored(const WeatherDataset& dataset, const std::vector<int64_t>& samples, const Batch& batch) {
  const Batch stored = dataset.read(samples, {.form = ValueForm::kStored}, 0);
  REQUIRE(stored.scaling == dataset.stored_scaling());
  const BatchNormalizer normalizer(*stored.scaling, at::kCPU);
  CHECK(at::equal(normalizer.normalized(stored.inputs, at::kFloat), batch.inputs));
  CHECK(at::equal(normalizer.normalized(stored.targets, at::kFloat), batch.targets));
  CHECK(!at::equal(stored.inputs, batch.inputs));
}

}  // namespace

TEST_CASE("weather: normalized pairs, from every kind of file in every way") {
  const auto group = comm::MpiGroup::world();
  const std::vector<int64_t> samples = {4, 0, 1, 2, 5, 3, 4};
  for (const auto& [type, gzip] : {std::pair{at::kFloat, 0}, {at::kFloat, 3}, {at::kDouble, 0}, {at::kDouble, 2}}) {
    const Folder folder(group);
    folder.write_all(type, gzip);
    for (const IoMode mode : testing::kIoModes) {
      WeatherOptions options = folder.options();
      options.io = mode;
      const WeatherDataset dataset(group, options);
      CHECK(dataset.size() == 6);
      CHECK(dataset.files().size() == 4);
      CHECK(dataset.input_shape() == std::vector<int64_t>{kChannels, kHeight, kWidth});
      CHECK(dataset.channel_names() == std::vector<std::string>{"u", "v", "h"});
      CHECK(dataset.background_reads() == (mode == IoMode::kAuto || mode == IoMode::kDirect));
      CHECK(dataset.cuts().row_unit == (gzip > 0 ? kHeight : 1));
      const Batch batch = dataset.read(samples, {}, 0);
      CHECK(batch.samples == samples);
      CHECK((batch.inputs.scalar_type() == at::kFloat));
      for (size_t i = 0; i < samples.size(); ++i) {
        const auto& [year, time] = kPairs[static_cast<size_t>(samples[i])];
        check_field(batch.inputs[static_cast<int64_t>(i)], year, time);
        check_field(batch.targets[static_cast<int64_t>(i)], year, time + 1);
      }
      const Batch inputs = dataset.read(samples, {.input = true, .target = false}, 0);
      CHECK(at::equal(inputs.inputs, batch.inputs));
      CHECK(!inputs.targets.defined());
      const Batch targets = dataset.read(samples, {.input = false, .target = true}, 0);
      CHECK(at::equal(targets.targets, batch.targets));
      CHECK(!targets.inputs.defined());
      CHECK(!dataset.read(samples, {.input = false, .target = false}, 0).inputs.defined());
      CHECK(batch.scaling == nullptr);
      // Only float32 can be used as it is stored.
      CHECK((dataset.stored_scaling() != nullptr) == (type == at::kFloat));
      if (dataset.stored_scaling() != nullptr) {
        check_stored(dataset, samples, batch);
      }
      for (const Range& band : {Range{0, 2}, Range{1, kHeight}, Range{3, 3}}) {
        const Batch part = dataset.read(samples, {.share = FieldShare{.rows = band}}, 0);
        CHECK(at::equal(part.inputs, batch.inputs.narrow(2, band.begin, band.size())));
        CHECK(at::equal(part.targets, batch.targets.narrow(2, band.begin, band.size())));
      }
    }
  }
}

TEST_CASE("weather: statistics may be a vector, or missing") {
  const auto group = comm::MpiGroup::world();
  const Folder folder(group);
  folder.write_all();
  if (group.rank() == 0) {
    folder.write_stats({kChannels});
  }
  group.barrier();
  const WeatherDataset dataset(group, folder.options());
  CHECK(dataset.size() == 6);
  check_field(dataset.read(std::vector<int64_t>{0}, {}, 0).targets[0], 1990, 1);
  CHECK_THROWS_AS(dataset.read(std::vector<int64_t>{dataset.size()}, {}, 0), Error);
  // Without statistics the values stay as they are.
  const WeatherDataset raw(group, {.folder = folder.scratch.path()});
  CHECK(raw.read(std::vector<int64_t>{3}, {}, 0).inputs.flatten()[9].item<double>() == value_at(1993, 0, 0, 1, 2));
}

TEST_CASE("weather: files of all names, in the order of their times") {
  const auto group = comm::MpiGroup::world();
  const Folder folder(group);
  const auto write = [&](const char* name, int64_t year, const std::vector<double>& times, const char* units) {
    testing::on_rank_0(group, [&] {
      testing::write_scaled_file(folder.scratch.file(name), year_values(year, 3, at::kFloat), {"u", "v", "h"}, times,
                                 {}, units);
    });
  };
  write("201502.h5", 1991, {0, 6, 12}, "hours since 2015-02-01 00:00:00");
  write("z.nc", 1990, {0, 0.25, 0.5}, "days since 2015-01-01");
  write("a.HDF5", 1993, {1000, 1006, 1012}, "hours since 2015-02-01 00:00:00");
  {
    const WeatherDataset dataset(group, {.folder = folder.scratch.path()});
    CHECK(dataset.size() == 6);
    CHECK(dataset.io_text() == "direct (chunks are inflated by the reading threads)");
    const Batch batch = dataset.read(std::vector<int64_t>{0, 2, 4}, {}, 0);
    int64_t i = 0;
    for (const int64_t year : {1990, 1991, 1993}) {
      CHECK(batch.inputs[i++].flatten()[0].item<double>() == value_at(year, 0, 0, 0, 0));
    }
  }
  group.barrier();
  const auto refused = [&](const std::string& text) {
    const Error error =
        testing::agreed_error(group, [&] { const WeatherDataset dataset(group, {.folder = folder.scratch.path()}); });
    CHECK((error.error_class() == ErrorClass::kBadData));
    CHECK_MESSAGE(contains(error.what(), text), error.what());
    group.barrier();
  };
  write("b.nc4", 1994, {1012, 1018, 1024}, "hours since 2015-02-01 00:00:00");
  refused("the times of " + folder.scratch.file("a.HDF5") +
          " (2015-03-14 16:00:00 to 2015-03-15 04:00:00) do not all lie");
  write("b.nc4", 1994, {2012, 2018, 2015}, "hours since 2015-02-01 00:00:00");
  refused("its times do not ascend: row 1 has 2018");
  testing::on_rank_0(group, [&] {
    const PosixFile file(folder.scratch.file("b.nc4"), PosixFile::Access::kCreate);
    file.write(0, "CDF\1 and what follows", 21);
  });
  refused("b.nc4 is a netCDF-3 (classic) file, not HDF5; convert it to netCDF-4, which is HDF5: nccopy -k nc4");
}

TEST_CASE("weather: pairs of a lead, none across a gap in the times") {
  const auto group = comm::MpiGroup::world();
  const Folder folder(group);
  testing::on_rank_0(group, [&] {
    testing::write_scaled_file(folder.year_path(1990), year_values(1990, 7, at::kFloat), {"u", "v", "h"},
                               {0, 6, 12, 18, /*24,*/ 30, 36, 42}, {}, "hours since 1990-01-01");
    testing::write_scaled_file(folder.year_path(1991), year_values(1991, 3, at::kFloat), {"u", "v", "h"}, {0, 6, 12},
                               {}, "hours since 1991-01-01");
    folder.write_stats({kChannels});
  });
  const std::vector<std::pair<int64_t, int64_t>> expected = {{1990, 0}, {1990, 1}, {1990, 4}, {1991, 0}};
  for (const Lead& lead : {Lead{.rows = 2}, Lead{.rows = 0, .hours = 12}}) {
    for (const IoMode mode : testing::kIoModes) {
      WeatherOptions options = folder.options();
      options.io = mode;
      options.lead = lead;
      const WeatherDataset dataset(group, options);
      REQUIRE(dataset.size() == std::ssize(expected));
      CHECK(dataset.num_gaps() == 2);
      CHECK(dataset.lead().rows == 2);
      CHECK(dataset.lead().hours == 12.0);
      const Batch batch = dataset.read(std::vector<int64_t>{0, 1, 2, 3}, {}, 0);
      for (size_t i = 0; i < expected.size(); ++i) {
        const auto& [year, time] = expected[i];
        check_field(batch.inputs[static_cast<int64_t>(i)], year, time);
        check_field(batch.targets[static_cast<int64_t>(i)], year, time + 2);
      }
    }
  }
  WeatherOptions options = folder.options();
  options.lead = {.rows = 0, .hours = 9};
  const Error odd = testing::agreed_error(group, [&] { const WeatherDataset dataset(group, options); });
  CHECK(contains(odd.what(), "the lead of 9 hours is no multiple of the 6 hours that the rows of the data lie apart"));
  options.lead = {.rows = 4};
  const Error long_one = testing::agreed_error(group, [&] { const WeatherDataset dataset(group, options); });
  CHECK(contains(long_one.what(), "holds no pair of times that are 4 rows apart"));
}

TEST_CASE("weather: files of the same size and other contents on one rank are found") {
  const auto group = comm::MpiGroup::world();
  const Folder folder(group);
  namespace fs = std::filesystem;
  const fs::path before = fs::current_path();
  const std::string mine = folder.scratch.file(str("rank", group.rank()));
  const int last = group.size() - 1;
  fs::create_directories(mine);
  const at::Tensor values = at::zeros({8, 3, 64, 64}, at::kFloat);
  testing::write_hdf5_file(mine + "/1990.h5", {{"fields", values}});
  values.fill_(1.0);
  testing::write_hdf5_file(mine + "/1991.h5", {{"fields", values}});
  fs::current_path(mine);  // the same path, and a folder of its own for each rank
  const WeatherOptions options{.folder = "."};
  { const WeatherDataset same(group, options); }
  group.barrier();
  if (group.rank() == last) {
    values[5].fill_(2.0);  // one row of eight
    testing::write_hdf5_file(mine + "/1991.h5", {{"fields", values}});
  }
  group.barrier();
  if (group.size() > 1) {
    const Error error = testing::agreed_error(group, [&] { const WeatherDataset mixed(group, options); });
    CHECK((error.error_class() == ErrorClass::kBadData));
    CHECK_MESSAGE(contains(error.what(), str("./1991.h5 has other contents on rank ", last, " (")), error.what());
    CHECK(contains(error.what(), ") than on rank 0 ("));
  }
  fs::current_path(before);
  group.barrier();
}

TEST_CASE("weather: a value that is not finite is named") {
  const auto group = comm::MpiGroup::world();
  const Folder folder(group);
  folder.write_all();
  if (group.rank() == 0) {
    at::Tensor values = year_values(1993, 3, at::kFloat);
    values[2][1][4].data_ptr<float>()[6] = std::numeric_limits<float>::quiet_NaN();
    folder.write_year(1993, values);
  }
  group.barrier();
  for (const IoMode mode : testing::kIoModes) {
    WeatherOptions options = folder.options();
    options.io = mode;
    const WeatherDataset dataset(group, options);
    for (const ValueForm form : {ValueForm::kNormalized, ValueForm::kStored}) {
      dataset.read(std::vector<int64_t>{0, 3, 5}, {.form = form}, 0);  // none of them has the bad time
      try {
        dataset.read(std::vector<int64_t>{0, 4}, {.form = form}, 0);
        CHECK(false);
      } catch (const Error& error) {
        CHECK((error.error_class() == ErrorClass::kBadData));
        CHECK(contains(error.what(), str(folder.year_path(1993), ": dataset 'fields' is not finite (nan) at time 2, ",
                                         "channel 1 (v), row 4, column 6")));
      }
    }
  }
}

TEST_CASE("weather: files that do not fit are one error on all ranks") {
  const auto group = comm::MpiGroup::world();
  struct Case {
    at::Tensor values;
    const char* message;
  };
  for (const Case& c : {Case{at::zeros({3, kChannels, kHeight, kWidth + 1}, at::kFloat), "(3, 3, 5, 8)"},
                        Case{at::zeros({3, kChannels, kHeight, kWidth}, at::kDouble), "is Double"},
                        Case{at::zeros({3, kChannels, kHeight}, at::kFloat), "has 3 dims"},
                        Case{at::zeros({3, kChannels, kHeight, kWidth}, at::kInt), "holds integers"},
                        Case{at::zeros({3, 0, kHeight, kWidth}, at::kFloat), "empty shape"}}) {
    const Folder folder(group);
    folder.write_all();
    if (group.rank() == 0) {
      folder.write_year(2001, c.values);
    }
    group.barrier();
    const Error error = error_of(group, folder.options());
    CHECK((error.error_class() == ErrorClass::kBadData));
    CHECK(contains(error.what(), c.message));
    CHECK(contains(error.what(), folder.year_path(2001)));
  }
  const Folder empty(group);
  CHECK((error_of(group, empty.options()).error_class() == ErrorClass::kMissingInput));
}

TEST_CASE("weather: all files that name channels name the same ones, in the same order") {
  const auto group = comm::MpiGroup::world();
  const Folder folder(group);
  const at::Tensor values = year_values(1990, 2, at::kFloat);
  const auto write = [&](int64_t year, const std::vector<std::string>& channels) {
    testing::on_rank_0(group, [&] {
      testing::write_hdf5_file(folder.year_path(year), {{"fields", values}}, channels);
    });
  };
  const WeatherOptions options{.folder = folder.scratch.path()};
  write(1990, {});
  write(1991, {"a", "b", "c"});
  const WeatherDataset dataset(group, options);
  CHECK(dataset.given_channels() == "a,b,c");
  CHECK(dataset.channel_names() == std::vector<std::string>{"a", "b", "c"});
  group.barrier();
  write(1992, {"a", "c", "b"});
  const Error error = testing::agreed_error(group, [&] { const WeatherDataset mixed(group, options); });
  CHECK((error.error_class() == ErrorClass::kBadData));
  CHECK(contains(error.what(), "era5_1992.h5 names its channels a,c,b"));
}

TEST_CASE("weather: bad statistics are one error on all ranks") {
  const auto group = comm::MpiGroup::world();
  const Folder folder(group);
  folder.write_all();
  const std::string stds = folder.scratch.file("global_stds.npy");
  const auto error_with = [&](const at::Tensor& values) {
    if (group.rank() == 0) {
      replace_npy({{stds, values}});
    }
    group.barrier();
    return error_of(group, folder.options());
  };
  for (const double bad :
       {0.0, -1.0, 1e-60, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    at::Tensor values = at::full({kChannels}, 1.0, at::kDouble);
    values.data_ptr<double>()[1] = bad;
    const Error error = error_with(values);
    CHECK((error.error_class() == ErrorClass::kBadData));
    CHECK(contains(error.what(), "global_stds.npy"));
    CHECK(contains(error.what(), "channel 1"));
  }
  CHECK(contains(error_with(at::full({kChannels + 1}, 1.0f)).what(), "needed is (1, 3, 1, 1) or (3)"));
  group.barrier();
  if (group.rank() == 0) {
    std::filesystem::remove(stds);
  }
  group.barrier();
  CHECK((error_of(group, folder.options()).error_class() == ErrorClass::kMissingInput));
}

TEST_CASE("weather: all replicas together load every pair of an epoch once") {
  const auto group = comm::MpiGroup::world();
  const Folder folder(group);
  folder.write_all();
  for (const IoMode mode : testing::kIoModes) {
    WeatherOptions options = folder.options();
    options.io = mode;
    const WeatherDataset dataset(group, options);
    const DistributedSampler sampler({.num_samples = dataset.size(), .global_batch_size = 4, .seed = 8});
    const EpochPlan plan = sampler.epoch(1);
    int64_t seen = 0;                                          // bit s: sample s
    for (int64_t step = 0; step < plan.num_steps(); ++step) {  // also without samples: reading may be collective
      const Batch batch = dataset.read(plan.replica_batch(step, group.rank(), group.size()), {}, plan.epoch());
      for (size_t i = 0; i < batch.samples.size(); ++i) {
        const int64_t sample = batch.samples[i];
        const auto& [year, time] = kPairs[static_cast<size_t>(sample)];
        check_field(batch.inputs[static_cast<int64_t>(i)], year, time);
        check_field(batch.targets[static_cast<int64_t>(i)], year, time + 1);
        CHECK((seen >> sample & 1) == 0);
        seen |= int64_t{1} << sample;
      }
    }
    CHECK(group.sum(seen) == 63);  // bits of different ranks are different, or the sum is another
  }
}

TEST_CASE("weather: of very many files each is compared") {
  const auto group = comm::MpiGroup::world();
  const Folder folder(group);
  namespace fs = std::filesystem;
  const fs::path before = fs::current_path();
  const std::string mine = folder.scratch.file(str("rank", group.rank()));
  const int last = group.size() - 1;
  fs::create_directories(mine);
  // Copies: HDF5 notes in a file in which second it was made.
  const auto source = [&](double value) { return folder.scratch.file(str("of_", value, ".h5")); };
  testing::on_rank_0(group, [&] {
    for (const double value : {0.0, 1.0})
      testing::write_hdf5_file(source(value), {{"fields", at::zeros({2, 3, 16, 32}, at::kFloat) + value}});
  });
  for (int year = 1900; year < 1970; ++year)
    fs::copy_file(source(year == 1933 && group.rank() == last ? 1.0 : 0.0), str(mine, "/", year, ".h5"));
  fs::current_path(mine);
  group.barrier();
  if (group.size() > 1) {
    const Error error = testing::agreed_error(group, [&] { const WeatherDataset mixed(group, {.folder = "."}); });
    CHECK_MESSAGE(contains(error.what(), str("./1933.h5 has other contents on rank ", last, " (")), error.message());
  }
  fs::current_path(before);
  group.barrier();
}

}  // namespace vit_hybrid::data
