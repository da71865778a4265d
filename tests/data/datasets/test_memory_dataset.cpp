// Year files and their pairs, channel names, normalization, and data sets in memory.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <set>

#include "data/datasets/memory_dataset.h"
#include "data/datasets/normalization.h"
#include "data/datasets/year_files.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid::data {
namespace {

void touch(const std::string& path) {
  std::ofstream(path) << "x";
}

RowFile file_of(const std::string& path, const TimeAxis& times = {}) {
  RowFile file;
  file.path = path;
  file.layout.times = times;
  return file;
}

std::vector<RowFile> files_of(const std::vector<std::string>& paths) {
  std::vector<RowFile> files;
  for (const std::string& path : paths) {
    files.push_back(file_of(path));
  }
  return files;
}

// The names in their order, or the error; then what is said of the order.
std::string ordered(std::vector<RowFile> files) {
  try {
    const std::string remark = order_by_time(files);
    std::string text;
    for (const RowFile& file : files) {
      text += file.path + " ";
    }
    return text + "| " + remark;
  } catch (const Error& error) {
    return str(error.exit_code(), " ", error.what());
  }
}

TimeAxis hours(double first, double last, const std::string& since = "1990-01-01", const std::string& calendar = "") {
  return time_axis({first, last}, "hours since " + since, calendar);
}

}  // namespace

TEST_CASE("weather files: HDF5 and netCDF-4 by their names, sorted") {
  const testing::ScratchFolder folder;
  for (const char* name : {"b.h5", "a.nc", "c.hdf5", "d.NC4", ".h.h5", "notes.txt", "x.nc.tmp"}) {
    touch(folder.file(name));
  }
  CHECK(list_weather_files(folder.path()) == std::vector<std::string>{folder.file("a.nc"), folder.file("b.h5"),
                                                                      folder.file("c.hdf5"), folder.file("d.NC4")});
  const testing::ScratchFolder empty;
  for (const std::string& path : {empty.path(), empty.file("none")}) {
    const Error error = testing::thrown_error([&] { list_weather_files(path); });
    CHECK(error.error_class() == ErrorClass::kMissingInput);
  }
}

TEST_CASE("weather files: the order of years, whatever stands before them") {
  CHECK(ordered(files_of({"2001.h5", "era5_1990.h5", "b1995.nc"})) == "era5_1990.h5 b1995.nc 2001.h5 | ");
  CHECK(ordered(files_of({"any.h5"})) == "any.h5 | ");
  CHECK(ordered(files_of({"2001.h5", "a2001.nc"})).find("65 two files of the year 2001: 2001.h5 and a2001.nc") == 0);
  for (const char* other : {"2001a.h5", "201501.h5", "01.h5", "a.h5"}) {
    const std::string text = ordered(files_of({"2001.h5", other}));
    CHECK_MESSAGE(text.find("65 the order of the files is not known") == 0, text);
  }
}

TEST_CASE("weather files: numbers of equal length are an order that is told") {
  const std::string text = ordered(files_of({"m/200002.h5", "m/199912.nc", "m/199911.h5"}));
  CHECK(text.find("m/199911.h5 m/199912.nc m/200002.h5 | files in the order of the numbers in their names") == 0);
  CHECK(ordered(files_of({"199912.h5", "199912.nc"})).find("65 two files of the number 199912") == 0);
  CHECK(ordered(files_of({"a199912.h5", "b200001.nc"})).find("65 ") == 0);
}

TEST_CASE("weather files: times come before names") {
  CHECK(ordered({file_of("b.h5", hours(0, 18)), file_of("a.h5", hours(24, 42))}) == "b.h5 a.h5 | ");
  // From another begin, in another unit, of another calendar.
  CHECK(ordered({file_of("1991.h5", hours(0, 18, "1991-01-01 00:00:00")), file_of("1990.h5", hours(0, 18))}) ==
        "1990.h5 1991.h5 | ");
  CHECK(ordered({file_of("a.h5", time_axis({2, 3}, "days since 1990-01-01T00:00:00Z", "")),
                 file_of("b.h5", hours(0, 47))}) == "b.h5 a.h5 | ");
  CHECK(ordered({file_of("a.h5", hours(0, 1)), file_of("b.h5", hours(2, 3, "1990-01-01", "noleap"))})
            .find("65 the order of the files is not known: their dates are of different calendars, standard and "
                  "noleap, and the name") == 0);
  CHECK(ordered({file_of("a.h5", hours(0, 1)), file_of("b.h5", time_axis({2, 3}, "", ""))})
            .find("65 the order of the files is not known: the time axes of some have units") == 0);
  CHECK(ordered({file_of("a.h5", hours(0, 1)), file_of("b.h5", hours(2, 3, "1990-01-01", "noleap")), file_of("c.h5")})
            .find("65 the order of the files is not known: not all have a time axis") == 0);
  CHECK(ordered({file_of("b.h5", hours(0, 24)), file_of("a.h5", hours(24, 42))})
            .find("65 the times of b.h5 (1990-01-01 00:00:00 to 1990-01-02 00:00:00) do not all lie before those of "
                  "a.h5 (1990-01-02 00:00:00 to ") == 0);
  // Numbers without units order files where they go on from one to the next, not where they count anew.
  const TimeAxis early = time_axis({0, 9}, "", "");
  const TimeAxis late = time_axis({10, 19}, "", "");
  CHECK(ordered({file_of("1990.h5", late), file_of("1991.h5", early)}) == "1991.h5 1990.h5 | ");
  CHECK(ordered({file_of("1991.h5", early), file_of("1990.h5", early)})
            .find("1990.h5 1991.h5 | files in the order of the years in their names: their time axes") == 0);
  CHECK(ordered({file_of("b.h5", early), file_of("a.h5", early)}).find("65 the order") == 0);
  // Where not all have times, those that have must not contradict the names.
  CHECK(ordered({file_of("1990.h5", hours(0, 9)), file_of("1991.h5"), file_of("1992.h5", hours(10, 19))}) ==
        "1990.h5 1991.h5 1992.h5 | ");
  CHECK(ordered({file_of("1990.h5", hours(10, 19)), file_of("1991.h5", hours(0, 9)), file_of("1992.h5")})
            .find("65 the times of 1990.h5") == 0);
}

TEST_CASE("time axes: units and calendars") {
  using Kind = TimeAxis::Kind;
  CHECK(time_axis({1, 2}, "hours since 1970-01-01", "").first == 3600.0);
  CHECK(time_axis({1, 2}, "days since 2000-03-01 12:00:00.5", "standard").last == 11019.5 * 86400.0 + 0.5);
  CHECK(time_axis({0, 1}, "minutes since 1970-1-2 00:01", "").first == 86460.0);
  CHECK(time_axis({0, 1}, "seconds since 1971-03-01", "noleap").first == (365.0 + 59) * 86400.0);
  CHECK(time_axis({0, 1}, "seconds since 1971-03-01", "366_day").first == (366.0 + 60) * 86400.0);
  CHECK(time_axis({0, 1}, "seconds since 1971-03-01", "360_day").first == 420.0 * 86400.0);
  for (const char* units : {"m", "hours", "months since 1990-01-01", "hours since 1990-02-30", "hours since 1990-13-01",
                            "hours since 1990-01-01 00:00:00 +01:00"}) {
    CAPTURE(units);
    CHECK((time_axis({0, 1}, units, "").kind == Kind::kNone));
  }
  CHECK((time_axis({0, 1}, "hours since 1990-01-01", "julian").kind == Kind::kNone));
  CHECK((time_axis({0, 1}, "", "").kind == Kind::kNumbers));
  CHECK((time_axis({0, HUGE_VAL}, "hours since 1990-01-01", "").kind == Kind::kNone));
  CHECK(time_text(hours(0, 1), hours(31, 32, "2016-02-28").first) == "2016-02-29 07:00:00");
}

namespace {

using Rows = std::vector<int64_t>;

// Rows of the inputs, counted over all files.
Rows all_pairs(const TimePairs& pairs) {
  Rows all;
  for (int64_t sample = 0; sample < pairs.size(); ++sample) {
    all.push_back(pairs.input_row(sample));
  }
  return all;
}

RowFile file_of_rows(int64_t rows, std::vector<double> times = {}) {
  RowFile file = file_of("a.h5");
  file.layout.shape = {rows, 1, 2, 2};
  if (!times.empty()) file.layout.times = time_axis(times, "hours since 1990-01-01", "");
  return file;
}

}  // namespace

TEST_CASE("time axes: the interval of most rows, and the rows before which others are missing") {
  const auto axis = [](const std::vector<double>& times, const char* units = "hours since 1990-01-01") {
    return time_axis(times, units, "");
  };
  CHECK(axis({5}).interval == 0.0);
  CHECK(axis({0, 6, 12, 18}).interval == 6 * 3600.0);
  CHECK(axis({0, 6, 12, 18}).gaps.empty());
  CHECK(axis({0, 6, 18, 24, 48, 54}).gaps == std::vector<int64_t>{2, 4});
  CHECK(axis({0, 6, 96}).gaps == std::vector<int64_t>{2});  // what is missing makes intervals long, not short
  CHECK(axis({0, 6, 8, 14, 20}).gaps == std::vector<int64_t>{2});
  CHECK(axis({0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334}, "days since 1990-01-01").gaps.empty());
  std::vector<double> rounded;  // hours in days of 32 bits
  for (int i = 0; i < 2000; ++i) {
    if (i != 700) rounded.push_back(static_cast<float>(43000.0 + i / 24.0));
  }
  CHECK(axis(rounded, "days since 1900-01-01").interval == 3600.0);
  CHECK(axis(rounded, "days since 1900-01-01").gaps == std::vector<int64_t>{700});
  CHECK(axis({0, 31, 90, 120, 151}, "days since 1990-01-01").gaps == std::vector<int64_t>{2});  // no February
}

TEST_CASE("time pairs: none crosses the end of a file without dates, or a gap in its times") {
  const std::vector<RowFile> years = {file_of_rows(4), file_of_rows(1), file_of_rows(0), file_of_rows(2),
                                      file_of_rows(3)};
  const TimePairs next(time_runs(years), 1);
  CHECK(all_pairs(next) == Rows{0, 1, 2, 5, 7, 8});
  CHECK_THROWS_AS(next.input_row(6), Error);
  CHECK(all_pairs(TimePairs(time_runs(years), 2)) == Rows{0, 1, 7});
  CHECK(TimePairs(time_runs(years), 4).size() == 0);
  CHECK(TimePairs(time_runs(std::vector<RowFile>(26, file_of_rows(1460))), 1).size() == 26 * 1459);

  const std::vector<RowFile> with_gaps = {file_of_rows(3),
                                          file_of_rows(8, {0, 6, 12, /*18,*/ 24, 30, 36, 42, /*48, 54,*/ 60})};
  CHECK(all_pairs(TimePairs(time_runs(with_gaps), 1)) == Rows{0, 1, 3, 4, 6, 7, 8});
  CHECK(all_pairs(TimePairs(time_runs(with_gaps), 2)) == Rows{0, 3, 6, 7});
}

TEST_CASE("time pairs: files whose dates go on are one run, but not those of other simulations or of dates left out") {
  const RowFile january = file_of_rows(3, {0, 6, 12}), next = file_of_rows(1, {18}), later = file_of_rows(2, {24, 30}),
                much_later = file_of_rows(2, {42, 48});
  const auto runs = [](const std::vector<RowFile>& files) {
    std::vector<std::pair<int64_t, int64_t>> all;
    for (const Range& run : time_runs(files)) {
      all.emplace_back(run.begin, run.end);
    }
    return all;
  };
  using Runs = std::vector<std::pair<int64_t, int64_t>>;
  CHECK(runs({january, next, later, much_later}) == Runs{{0, 6}, {6, 8}});
  CHECK(all_pairs(TimePairs(time_runs({january, next, later}), 2, 2)) == Rows{2, 3});
  CHECK(runs({january, file_of_rows(1)}) == Runs{{0, 3}, {3, 4}});  // without dates
  CHECK(runs({january, file_of_rows(2, {18, 19})}) == Runs{{0, 3}, {3, 5}});
  // A file for each time: the interval is that of most.
  const auto at = [](double hours) { return file_of_rows(1, {hours}); };
  CHECK(runs({at(0), at(6), at(12), at(24), at(30)}) == Runs{{0, 3}, {3, 5}});
  CHECK(common_interval({at(0), at(6), at(12), at(24), at(30)}) == 6 * kSecondsOfHour);
  // The months of a year in quarters: 365 days in 12 of them, less the last one.
  const std::vector<double> days = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  std::vector<RowFile> quarters;
  for (auto day = days.begin(); day != days.end(); day += 3) {
    quarters.push_back(file_of_rows(3, {day[0] * 24, day[1] * 24, day[2] * 24}));
  }
  CHECK(common_interval(quarters) == std::round(334.0 / 11.0 * 24.0 * kSecondsOfHour));
  CHECK(runs(quarters) == Runs{{0, 12}});
  // Gaps within, and gaps between.
  CHECK(runs({file_of_rows(3, {0, 6, 18}), file_of_rows(2, {24, 30})}) == Runs{{0, 2}, {2, 5}});

  RowFile other = next;
  other.layout.times.simulation = "2";
  CHECK(runs({january, other, later}) == Runs{{0, 3}, {3, 4}, {4, 6}});
  RowFile half = january;
  half.layout.chosen = Range{1, 2};
  CHECK(runs({half, next}) == Runs{{1, 2}, {3, 4}});
  half.layout.chosen = Range{1, 3};
  RowFile first = later, none = next;
  first.layout.chosen = Range{0, 1};
  CHECK(runs({half, next, first}) == Runs{{1, 5}});
  none.layout.chosen = Range{0, 0};
  CHECK(runs({half, none, first}) == Runs{{1, 3}, {4, 5}});
  CHECK(runs({none}).empty());
}

TEST_CASE("time pairs: rows beyond the dates are states before, and missing rows are in no pair") {
  RowFile january = file_of_rows(6, {0, 6, 12, 18, 24, 30}), next = file_of_rows(4, {36, 42, 48, 54});
  const auto pairs = [](const std::vector<RowFile>& files, int64_t lead, int64_t history) {
    return all_pairs(TimePairs(time_runs(files), lead, history, chosen_rows(files)));
  };
  CHECK((chosen_rows({january, next}) == Range{0, 10}));
  // The dates are rows 5 .. 8; states before them may be read from row 3 on.
  january.layout.chosen = Range{5, 6};
  next.layout.chosen = next.layout.usable = Range{0, 3};
  CHECK((chosen_rows({january, next}) == Range{5, 9}));
  CHECK(pairs({january, next}, 1, 1) == Rows{5, 6, 7});
  CHECK(pairs({january, next}, 1, 3) == Rows{7});
  january.layout.usable = Range{3, 6};
  CHECK((time_runs({january, next}) == std::vector<Range>{{3, 9}}));
  CHECK(pairs({january, next}, 1, 1) == Rows{5, 6, 7});
  CHECK(pairs({january, next}, 1, 3) == Rows{5, 6, 7});
  CHECK(pairs({january, next}, 2, 2) == Rows{5, 6});
  // None of the dates in the first file.
  january.layout.chosen = Range{6, 6};
  CHECK(pairs({january, next}, 1, 3) == Rows{6, 7});

  RowFile whole = file_of_rows(8, {0, 6, 12, 18, 24, /*30,*/ 36, 42, 48});
  whole.layout.missing = {0, 2, 7};
  CHECK((time_runs({whole}) == std::vector<Range>{{1, 2}, {3, 5}, {5, 7}}));
  CHECK((time_runs({whole, file_of_rows(2, {54, 60})}) == std::vector<Range>{{1, 2}, {3, 5}, {5, 7}, {8, 10}}));
  whole.layout.missing = {5};
  RowFile later = file_of_rows(2, {54, 60});
  CHECK((time_runs({whole, later}) == std::vector<Range>{{0, 5}, {6, 10}}));
  later.layout.missing = {0};
  CHECK((time_runs({whole, later}) == std::vector<Range>{{0, 5}, {6, 8}, {9, 10}}));
  later.layout.missing = {0, 1};
  CHECK(time_runs({later}).empty());
}

TEST_CASE("leads: rows and hours, by the interval that all files have") {
  const auto interval = [](const std::vector<RowFile>& files) { return common_interval(files) / 3600.0; };
  const RowFile six = file_of_rows(3, {0, 6, 12}), twelve = file_of_rows(2, {100, 112}), one = file_of_rows(1, {200});
  CHECK(interval({six, one, six}) == 6.0);
  CHECK(interval({six, file_of_rows(3)}) == 0.0);  // one does not say
  CHECK(interval({one}) == 0.0);
  CHECK(interval({one, file_of_rows(1, {206})}) == 6.0);  // from one to the next
  CHECK_THROWS_AS(interval({six, one, twelve}), Error);

  const auto resolved = [](const Lead& lead, double hours) { return lead_text(resolved_lead(lead, hours * 3600.0)); };
  CHECK(resolved({}, 6) == "1 row (6 hours)");
  CHECK(resolved({}, 0) == "1 row");
  CHECK(resolved({.rows = 4}, 6) == "4 rows (24 hours)");
  CHECK(resolved({.rows = 0, .hours = 24}, 6) == "4 rows (24 hours)");
  CHECK(resolved({.rows = 4, .hours = 24}, 1) == "24 rows (24 hours)");  // a model of 6-hourly data on hourly ones
  CHECK(resolved({.rows = 4, .hours = 24}, 0) == "4 rows");
  for (const auto& [hours, of_data] : {std::pair(9.0, 6.0), std::pair(3.0, 6.0), std::pair(24.0, 0.0)}) {
    CAPTURE(hours);
    CHECK_THROWS_AS(resolved({.rows = 0, .hours = hours}, of_data), Error);
  }
}

TEST_CASE("channel names: from the file, of ERA5, or numbered") {
  CHECK(channel_names(3, "u, v ,h", "f") == std::vector<std::string>{"u", "v", "h"});
  CHECK(channel_names(3, "", "f") == std::vector<std::string>{"c00", "c01", "c02"});
  CHECK(channel_names(101, "", "f")[7] == "c007");
  const auto era5 = channel_names(20, "", "f");
  CHECK(era5.front() == "u10");
  CHECK(era5[14] == "z500");
  CHECK(era5.back() == "tcwv");
  CHECK_THROWS_AS(channel_names(3, "u,v", "f"), Error);
}

TEST_CASE("normalization: by channel, in place and from double, with the first element that is not finite") {
  const Normalization normalization{{1.0, -2.0}, {0.5, 4.0}};
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    at::Tensor field = at::linspace(-3.0, 5.0, 2 * 3 * 7, at::kDouble).to(type).reshape({2, 3, 7});
    const at::Tensor expected = at::empty({2, 3, 7}, at::kDouble);
    for (int64_t i = 0; i < 42; ++i) {
      const double value = field.flatten()[i].item<double>();
      expected.data_ptr<double>()[i] = i < 21 ? (value - 1.0) / 0.5 : (value + 2.0) / 4.0;
    }
    const at::Tensor to = at::empty({2, 3, 7}, at::kFloat);
    CHECK(normalize_field(field, normalization, to) == -1);
    CHECK((to.to(at::kDouble) - expected).abs().max().item<double>() < 1e-6);
    if (type == at::kFloat) {
      const at::Tensor in_place = field.clone();
      CHECK(normalize_field(in_place, normalization, in_place) == -1);
      CHECK(at::equal(in_place, to));
    }
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()}) {
      for (const int64_t place : {0, 5, 20, 21, 40, 41}) {
        const at::Tensor spoilt = field.clone();
        spoilt.flatten()[place].fill_(bad);
        CHECK(normalize_field(spoilt, normalization, to) == place);
      }
    }
  }
}

TEST_CASE("normalization: pieces of a field, cut anywhere, are as the whole") {
  const Normalization normalization{{1.0, -2.0, 0.5}, {0.5, 4.0, 3.0}};
  const at::Tensor field = at::randn({3, 2, 5}, at::kFloat);
  const at::Tensor whole = at::empty({3, 2, 5}, at::kFloat);
  REQUIRE(normalize_field(field, normalization, whole) == -1);
  for (const int64_t piece : {1, 3, 7, 10, 16, 30}) {
    const at::Tensor in_place = field.clone();
    for (int64_t begin = 0; begin < 30; begin += piece) {
      const Range run{begin, std::min<int64_t>(begin + piece, 30)};
      CHECK(normalize_run({in_place.const_data_ptr(), at::kFloat}, run, 10, normalization,
                          in_place.data_ptr<float>()) == -1);
    }
    CHECK(at::equal(in_place, whole));
  }
  // The place of a bad value counts from the field's first one.
  field.flatten()[17].fill_(std::numeric_limits<double>::infinity());
  CHECK(normalize_run({field.const_data_ptr(), at::kFloat}, {12, 20}, 10, normalization, whole.data_ptr<float>()) ==
        17);
  CHECK(normalize_run({field.const_data_ptr(), at::kFloat}, {18, 30}, 10, normalization, whole.data_ptr<float>()) ==
        -1);
}

TEST_CASE("memory data set: pairs of consecutive fields, and classes") {
  const at::Tensor fields = at::randn({5, 2, 3, 4}, at::kFloat);
  const auto pairs = MemoryDataset::pairs(fields, {"a", "b"});
  CHECK(pairs.size() == 4);
  CHECK(pairs.input_shape() == std::vector<int64_t>{2, 3, 4});
  CHECK(pairs.channel_names() == std::vector<std::string>{"a", "b"});
  const std::vector<int64_t> samples = {3, 0, 3};
  const Batch batch = pairs.read(samples, {}, 0);
  CHECK(batch.samples == samples);
  CHECK(at::equal(batch.inputs, fields.index_select(0, at::tensor({3, 0, 3}))));
  CHECK(at::equal(batch.targets, fields.index_select(0, at::tensor({4, 1, 4}))));
  CHECK(!pairs.read(samples, {.input = false}, 0).inputs.defined());
  CHECK(!pairs.read(samples, {.target = false}, 0).targets.defined());
  CHECK(pairs.read({}, {}, 0).inputs.sizes().vec() == std::vector<int64_t>{0, 2, 3, 4});

  const MemoryDataset classes(fields, at::tensor({7, 5, 3, 1, 0}, at::kLong));
  CHECK(classes.target_shape().empty());
  CHECK(at::equal(classes.read(samples, {}, 0).targets, at::tensor({1, 7, 1}, at::kLong)));
  CHECK_THROWS_AS(classes.read(std::vector<int64_t>{5}, {}, 0), Error);
}

TEST_CASE("synthetic data set: keyed by seed and sample, mean 0 and variance 1") {
  const auto fields = SyntheticDataset::fields(100, {2, 30, 40}, 11);
  const std::vector<int64_t> samples = {4, 99, 4};
  const Batch batch = fields.read(samples, {}, 0);
  CHECK(batch.inputs.sizes().vec() == std::vector<int64_t>{3, 2, 30, 40});
  CHECK(at::equal(batch.inputs[0], batch.inputs[2]));
  CHECK(!at::equal(batch.inputs[0], batch.inputs[1]));
  CHECK(at::equal(fields.read(samples, {}, 9).inputs, batch.inputs));  // the same in every epoch
  CHECK(at::equal(SyntheticDataset::fields(100, {2, 30, 40}, 11).read(samples, {}, 0).targets, batch.targets));
  CHECK(!at::equal(SyntheticDataset::fields(100, {2, 30, 40}, 12).read(samples, {}, 0).inputs, batch.inputs));
  // 2,400 uniform draws: deviation 0.02 of the mean and 0.018 of the variance.
  const at::Tensor values = batch.inputs[0].to(at::kDouble);
  CHECK(std::abs(values.mean().item<double>()) < 0.1);
  CHECK(std::abs(values.var().item<double>() - 1.0) < 0.1);
  const at::Tensor input = batch.inputs[0].flatten();
  const at::Tensor target = batch.targets[0].flatten();
  CHECK(at::equal(target.narrow(0, 0, 2399), input.narrow(0, 1, 2399)));
  CHECK(fields.channel_names() == std::vector<std::string>{"c00", "c01"});

  const auto images = SyntheticDataset::images(1000, {3, 8, 8}, 5, 1);
  std::vector<int64_t> all(1000);
  std::iota(all.begin(), all.end(), int64_t{0});
  const at::Tensor labels = images.read(all, {.input = false}, 0).targets;
  CHECK((labels.scalar_type() == at::kLong));
  CHECK(std::set<int64_t>(labels.const_data_ptr<int64_t>(), labels.const_data_ptr<int64_t>() + 1000) ==
        std::set<int64_t>{0, 1, 2, 3, 4});
  CHECK(images.target_shape().empty());
}

}  // namespace vit_hybrid::data
