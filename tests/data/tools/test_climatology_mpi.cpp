// data stats --climatology: the definition as a straight sum over years, days and offsets, the same bytes from any
// number of ranks, and what is refused.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "data/datasets/weather_dataset.h"
#include "data/hdf5/hdf5_scales.h"
#include "data/hdf5/hdf5_writer.h"
#include "data/reading/row_source.h"
#include "data/tools/climatology.h"
#include "data/tools/row_statistics.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/files.h"
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

constexpr int64_t kLeapDays = 366;

struct StampedRow {
  int64_t year;
  int64_t day;  // from 1
  int64_t days_in_year;
  int64_t hour;
};

// The rows of years, and their values [rows, 2, 3, 4].
struct DatedFields {
  std::vector<StampedRow> rows;
  at::Tensor values;

  DatedFields part_of(int64_t year) const {
    DatedFields part;
    std::vector<at::Tensor> chosen;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].year == year) {
        part.rows.push_back(rows[i]);
        chosen.push_back(values[static_cast<int64_t>(i)]);
      }
    }
    part.values = at::stack(chosen);
    return part;
  }
};

DatedFields make_fields(const std::vector<std::pair<int64_t, int64_t>>& years, const std::vector<int64_t>& hours,
                        const std::function<bool(const StampedRow&)>& is_there) {
  DatedFields fields;
  for (const auto& [year, days] : years) {
    for (int64_t day = 1; day <= days; ++day) {
      for (const int64_t hour : hours) {
        const StampedRow row{year, day, days, hour};
        if (is_there(row)) {
          fields.rows.push_back(row);
        }
      }
    }
  }
  fields.values = testing::counted({std::ssize(fields.rows), 2, 3, 4}).mul(0.7).sin().mul(3.0).add(250.0);
  return fields;
}

// Hours since the begin of `first`, of years that have their days in order.
std::vector<double> hours_since(int64_t first, const std::vector<StampedRow>& rows,
                                const std::vector<std::pair<int64_t, int64_t>>& years) {
  std::vector<double> times;
  for (const StampedRow& row : rows) {
    int64_t days = row.day - 1;
    for (const auto& [year, length] : years) {
      days += year >= first && year < row.year ? length : 0;
    }
    times.push_back(static_cast<double>(24 * days + row.hour));
  }
  return times;
}

// One run of values with a scale of time; `units` may be empty.
void write_dated_file(const std::string& path, const at::Tensor& values, const std::vector<double>& times,
                      const std::string& units, const std::string& calendar) {
  const auto self = comm::MpiGroup::alone();
  const at::Tensor scale = at::zeros({std::ssize(times)}, at::kDouble);
  std::copy(times.begin(), times.end(), scale.mutable_data_ptr<double>());
  const Hdf5Attributes dates = {{"units", units}, {"calendar", calendar}};
  Hdf5Writer file(self, path,
                  {{"fields", values.sizes().vec(), at::kFloat, {{"channels", std::string("t2m,z500")}}},
                   {"time", {std::ssize(times)}, at::kDouble, units.empty() ? Hdf5Attributes() : dates}});
  file.write("fields", std::array<int64_t, 4>{0, 0, 0, 0}, values.contiguous());
  file.write("time", std::array<int64_t, 1>{0}, scale);
  attach_hdf5_scales(temporary_name(path), {{"fields", {{"/time"}, {}, {}, {}}}});
  file.finish();
}

// The mean over years and offsets by the definition, float64 [366 x hours, 2, 3, 4].
at::Tensor direct_means(const DatedFields& fields, const std::vector<int64_t>& hours, int64_t window) {
  const auto num_hours = std::ssize(hours);
  const at::Tensor means = at::zeros({kLeapDays * num_hours, 2, 3, 4}, at::kDouble);
  const at::Tensor values = fields.values.to(at::kDouble);
  // The values at a day and hour: those of a year without day 366 at day 365 are of 366, too.
  const auto sum_of_day = [&](int64_t day, int64_t hour, double& count) {
    at::Tensor sum = at::zeros({2, 3, 4}, at::kDouble);
    for (size_t i = 0; i < fields.rows.size(); ++i) {
      const StampedRow& row = fields.rows[i];
      if (row.hour == hour && (row.day == day || (day == 366 && row.day == 365 && row.days_in_year == 365))) {
        sum += values[static_cast<int64_t>(i)];
        count += 1.0;
      }
    }
    return sum;
  };
  const int64_t half = window / 2;
  for (int64_t k = 0; k < num_hours; ++k) {
    std::vector<at::Tensor> of_days;
    const at::Tensor counts = at::zeros({kLeapDays, 1, 1, 1}, at::kDouble);
    for (int64_t day = 1; day <= kLeapDays; ++day) {
      of_days.push_back(sum_of_day(day, hours[static_cast<size_t>(k)], counts.mutable_data_ptr<double>()[day - 1]));
    }
    const at::Tensor sums = at::stack(of_days);
    at::Tensor mean = at::zeros_like(sums), weights = at::zeros_like(counts);
    for (int64_t offset = -half; offset <= half; ++offset) {  // over the end of the year, too
      const double weight = half == 0 ? 1.0 : 1.0 - static_cast<double>(std::abs(offset)) / static_cast<double>(half);
      mean += sums.roll(-offset, 0) * weight;
      weights += counts.roll(-offset, 0) * weight;
    }
    means.slice(0, k, std::nullopt, num_hours).copy_(mean / weights);
  }
  return means;
}

// The rows of a file, as evaluate reads them.
at::Tensor rows_of(const std::string& path) {
  const auto self = comm::MpiGroup::alone();
  const WeatherTimes times(self, {.folder = path});
  std::vector<at::Tensor> rows;
  for (int64_t i = 0; i < times.size(); ++i) {
    rows.push_back(times.read_stored(i));
  }
  return at::stack(rows);
}

double largest_error(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b).abs().max().item<double>();
}

constexpr double kRoundingOfFloat = 2e-5;  // of values up to 253

WriteStatsOptions stats_of(const std::string& folder, const std::string& out, int64_t window) {
  WriteStatsOptions options;
  options.inputs = {folder};
  options.out = out;
  options.climatology = true;
  options.climatology_days = window;
  options.overwrite = true;
  return options;
}

using Years = std::vector<std::pair<int64_t, int64_t>>;
const std::vector<int64_t> kSixHourly = {0, 6, 12, 18};

bool is_always_there(const StampedRow&) {
  return true;
}

}  // namespace

TEST_CASE("climatology: the definition, from one run of values and chunks of two times, from any number of ranks") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const Years years = {{2003, 365}, {2004, 366}, {2005, 365}};
  // A stretch is missing in one year, a day in all.
  const DatedFields fields = make_fields(years, kSixHourly, [](const StampedRow& row) {
    return (row.year != 2003 || row.day < 100 || row.day > 180) && row.day != 200;
  });
  fs::create_directories(folder.file("flat"));
  fs::create_directories(folder.file("chunks"));
  on_rank_0(group, [&] {
    for (const auto& [year, days] : years) {
      const DatedFields part = fields.part_of(year);
      const std::vector<double> times = hours_since(2003, part.rows, years);
      write_dated_file(folder.file(str("flat/", year, ".h5")), part.values, times, "hours since 2003-01-01",
                       "standard");
      testing::write_scaled_file(folder.file(str("chunks/", year, ".h5")), part.values, {"t2m", "z500"}, times, {},
                                 "hours since 2003-01-01");
    }
  });
  for (const int64_t window : {5, 61}) {
    const at::Tensor expected = direct_means(fields, kSixHourly, window);
    for (const std::string way : {"flat", "chunks"}) {
      testing::in_groups(group, [&](const comm::MpiGroup& part, const std::string& name) {
        const WrittenStats stats = write_stats(part, stats_of(folder.file(way), folder.file(way + name), window));
        CHECK(stats.climatology == str("366 days x 4 hours, from ", fields.rows.size(),
                                       " rows of 3 years in a window of ", window, " days"));
        part.barrier();
        on_rank_0(part, [&] {
          const at::Tensor means = rows_of(folder.file(way + name + "/climatology.nc"));
          REQUIRE(means.sizes() == expected.sizes());
          CHECK(largest_error(means, expected) < kRoundingOfFloat);
        });
      });
      const std::string one = file_bytes(folder.file(way + "one/climatology.nc"));
      CHECK(!one.empty());
      CHECK((one == file_bytes(folder.file(way + "all/climatology.nc"))));
      CHECK((group.size() == 1 || one == file_bytes(folder.file(way + "rest/climatology.nc"))));
    }
    on_rank_0(group, [&] {
      CHECK(
          at::equal(rows_of(folder.file("flatall/climatology.nc")), rows_of(folder.file("chunksall/climatology.nc"))));
    });
  }
  const Error none =
      agreed_error(group, [&] { write_stats(group, stats_of(folder.file("flat"), folder.file("none"), 1)); });
  CHECK((none.error_class() == ErrorClass::kBadData));
  CHECK_MESSAGE(contains(none.what(), "2 more files counts for day 200 of the year at 00:00, with a window of 1 day"),
                none.what());
  group.barrier();
  CHECK_FALSE((group.rank() == 0 && fs::exists(folder.file("none"))));
  // As a weather file it is one run of the leap year 2000.
  const auto self = comm::MpiGroup::alone();
  const std::string path = folder.file("chunksall/climatology.nc");
  const WeatherTimes times(self, {.folder = path});
  CHECK(times.place(0).run == Range{0, kLeapDays * 4});
  CHECK((times.channel_names() == std::vector<std::string>{"t2m", "z500"}));
  CHECK((times.units() == std::vector<std::string>{"m/s", "m/s"}));  // the attribute of write_scaled_file()
  CHECK((times.grid() == Grid{{0.0, 0.5, 1.0}, {0.0, 0.5, 1.0, 1.5}}));
  const StoredTimes stored = stored_times(path, "fields");
  const TimeAxis axis = checked_time_axis(stored, path);
  CHECK(time_text(axis, axis.first) == "2000-01-01 00:00:00");
  CHECK(time_text(axis, axis.last) == "2000-12-31 18:00:00");
  CHECK((axis.interval == 6 * 3600.0 && axis.gaps.empty()));
  // Without coordinates of the points it has none.
  const WeatherTimes flat(self, {.folder = folder.file("flatall/climatology.nc")});
  CHECK((flat.grid() == Grid()));
  CHECK((flat.units() == std::vector<std::string>{"K", "m2/s2"}));
  group.barrier();
}

TEST_CASE("climatology: the same values whatever memory the sums have, of one run of values and of chunks") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const Years years = {{2004, 366}};
  const DatedFields fields = make_fields(years, {0, 12}, is_always_there);
  const std::vector<double> times = hours_since(2004, fields.rows, years);
  on_rank_0(group, [&] {
    write_dated_file(folder.file("flat.h5"), fields.values, times, "hours since 2004-01-01", "standard");
    testing::write_scaled_file(folder.file("chunks.h5"), fields.values, {"t2m", "z500"}, times, {},
                               "hours since 2004-01-01");
  });
  const at::Tensor expected = direct_means(fields, {0, 12}, 9);
  for (const std::string way : {"flat", "chunks"}) {
    const RowSource source(group, {folder.file(way + ".h5")}, FieldQuery(), IoMode::kAuto);
    for (const MissingValues missing : {MissingValues::kRefuse, MissingValues::kCount}) {
      // All; less than both hours of a plane; less than two rows; less than one.
      for (const int64_t elements : {1000, 20, 7, 1}) {
        const auto bytes = elements * kLeapDays * static_cast<int64_t>(sizeof(double));
        const std::string path = folder.file(str(way, elements, ".nc"));
        Climatology(group, source, {9, missing, bytes}).write(path, {"t2m", "z500"})->finish();
        CHECK((file_bytes(path) == file_bytes(folder.file(way + "1000.nc"))));
        on_rank_0(group, [&] { CHECK(largest_error(rows_of(path), expected) < kRoundingOfFloat); });
      }
    }
  }
  group.barrier();
}

TEST_CASE("climatology: days of the data's calendar, chosen dates and channels") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const std::vector<int64_t> hours = {3, 15};
  struct Case {
    const char* calendar;
    int64_t days;
  };
  for (const Case& one : {Case{"noleap", 365}, Case{"all_leap", 366}, Case{"360_day", 360}}) {
    const Years years = {{2003, one.days}, {2004, one.days}};
    const DatedFields fields = make_fields(years, hours, is_always_there);
    const std::string data = folder.file(one.calendar);
    fs::create_directories(data);
    on_rank_0(group, [&] {
      write_dated_file(data + "/all.h5", fields.values, hours_since(2003, fields.rows, years), "hours since 2003-01-01",
                       one.calendar);
    });
    WriteStatsOptions options = stats_of(data, folder.file("stats"), 31);
    if (one.days == 360) {
      const Error error = agreed_error(group, [&] { write_stats(group, options); });
      CHECK((error.error_class() == ErrorClass::kBadData));
      CHECK_MESSAGE(contains(error.what(), "all.h5 has the calendar 360_day"), error.what());
      continue;
    }
    write_stats(group, options);
    group.barrier();
    CHECK(largest_error(rows_of(folder.file("stats/climatology.nc")), direct_means(fields, hours, 31)) <
          kRoundingOfFloat);
    options.fields.dates.span = "2004";
    options.fields.channels = "z500";
    write_stats(group, options);
    group.barrier();
    const at::Tensor expected = direct_means(fields.part_of(2004), hours, 31).narrow(1, 1, 1);
    CHECK(largest_error(rows_of(folder.file("stats/climatology.nc")), expected) < kRoundingOfFloat);
    group.barrier();
  }
}

TEST_CASE("climatology: values that are missing do not count, and some must be there") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const Years years = {{2003, 365}, {2004, 366}};
  DatedFields fields = make_fields(years, {0}, is_always_there);
  DatedFields holed = fields;
  holed.values = fields.values.clone();
  // One value of the first year: its weight goes to the others. (2003-02-09, and 2004-02-09.)
  holed.values[39][1][2][3] = std::numeric_limits<float>::quiet_NaN();
  fs::create_directories(folder.file("train"));
  const auto write = [&] {
    on_rank_0(group, [&] {
      write_dated_file(folder.file("train/all.h5"), holed.values, hours_since(2003, holed.rows, years),
                       "hours since 2003-01-01", "standard");
    });
  };
  write();
  WriteStatsOptions options = stats_of(folder.file("train"), folder.file("stats"), 1);
  const Error refused = agreed_error(group, [&] { write_stats(group, options); });
  CHECK_MESSAGE(contains(refused.what(), "all.h5: dataset 'fields' is not finite (nan) at time 39, channel 1"),
                refused.what());
  group.barrier();
  CHECK_FALSE((group.rank() == 0 && fs::exists(folder.file("stats"))));
  options.skip_missing = true;
  write_stats(group, options);
  group.barrier();
  const at::Tensor expected = direct_means(fields, {0}, 1);
  expected[39][1][2][3] = fields.values[365 + 39][1][2][3].item<double>();
  CHECK(largest_error(rows_of(folder.file("stats/climatology.nc")), expected) < kRoundingOfFloat);
  group.barrier();
  holed.values[365 + 39][1][2][3] = -std::numeric_limits<float>::infinity();
  write();
  const std::string before = file_bytes(folder.file("stats/climatology.nc"));
  const Error none = agreed_error(group, [&] { write_stats(group, options); });
  CHECK((none.error_class() == ErrorClass::kBadData));
  CHECK_MESSAGE(contains(none.what(), "is missing at all times within the window around day 40 of the year at 00:00"),
                none.what());
  group.barrier();
  CHECK((file_bytes(folder.file("stats/climatology.nc")) == before));
  CHECK(!fs::exists(temporary_name(folder.file("stats/climatology.nc"))));
  group.barrier();
}

TEST_CASE("climatology: what is refused, and that it is never beside other statistics") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const Years years = {{2003, 365}};
  const DatedFields fields = make_fields(years, {0}, is_always_there);
  fs::create_directories(folder.file("train"));
  fs::create_directories(folder.file("bare"));
  on_rank_0(group, [&] {
    const std::vector<double> times = hours_since(2003, fields.rows, years);
    write_dated_file(folder.file("train/a.h5"), fields.values, times, "hours since 2003-01-01", "standard");
    write_dated_file(folder.file("bare/a.h5"), fields.values, times, "", "");
  });
  const auto refused = [&](const WriteStatsOptions& options, ErrorClass error_class, const std::string& text) {
    const Error error = agreed_error(group, [&] { write_stats(group, options); });
    CHECK((error.error_class() == error_class));
    CHECK_MESSAGE(contains(error.what(), text), error.what());
    group.barrier();
  };
  const WriteStatsOptions good = stats_of(folder.file("train"), folder.file("stats"), 61);
  refused(stats_of(folder.file("bare"), folder.file("stats"), 61), ErrorClass::kBadData,
          "a.h5 has no dates, by which a climatology is made");
  refused(stats_of(folder.file("train"), folder.file("train"), 61), ErrorClass::kCannotCreate,
          "climatology.nc would be read as one of their files");
  WriteStatsOptions part = good;
  part.fields.dates.span = "2003-01/2003-06";
  refused(part, ErrorClass::kBadData, "a.h5 counts for day 211 of the year at 00:00, with a window of 61 days");
  group.barrier();
  CHECK_FALSE((group.rank() == 0 && fs::exists(folder.file("stats"))));
  write_stats(group, good);
  WriteStatsOptions again = good;
  again.overwrite = false;
  on_rank_0(group, [&] {
    fs::remove(folder.file("stats/global_means.npy"));
    fs::remove(folder.file("stats/global_stds.npy"));
  });
  refused(again, ErrorClass::kCannotCreate, "climatology.nc' is there already");
  WriteStatsOptions other = good;
  other.climatology = false;
  refused(other, ErrorClass::kCannotCreate,
          "also holds climatology.nc, which would not be replaced; give --climatology");
  write_stats(group, good);
  on_rank_0(group, [&] {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder.file("stats"))) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    CHECK((names == std::vector<std::string>{"channels.txt", "climatology.nc", "global_means.npy", "global_stds.npy"}));
  });
}

}  // namespace vit_hybrid::data
