// What a model takes and gives of the weather: history, forcings, diagnostics and static fields, channel by channel.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <doctest/doctest.h>

#include "data/datasets/weather_dataset.h"
#include "data/loading/normalize.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "tests/support/contains.h"
#include "tests/support/io_modes.h"
#include "tests/support/on_rank_0.h"
#include "tests/support/scaled_file.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid::data {
namespace {

using vit_hybrid::testing::contains;

constexpr int64_t kNumTimes = 9, kLatitudes = 6, kLongitudes = 8;
constexpr double kGapAfter = 5;  // times
// In the file; what the model has of them is in another order.
const std::vector<std::string> kInFile = {"tp", "u10", "sst", "t2m"};
const Normalization kRowStatistics = {{2.0, -1.0, 0.5, 3.0}, {0.5, 2.0, 4.0, 0.25}};  // of sst, u10, t2m, tp

struct Weather {
  // In one file, or in several ones that end at these times.
  explicit Weather(const comm::MpiGroup& group, const std::vector<int64_t>& ends = {kNumTimes})
      : scratch(group), fields(values()) {
    testing::on_rank_0(group, [&] {
      int64_t begin = 0;
      for (const int64_t end : ends) {
        std::vector<double> hours;
        for (int64_t time = begin; time < end; ++time) {
          hours.push_back(1.0e6 + 6.0 * static_cast<double>(time) +
                          (static_cast<double>(time) < kGapAfter ? 0.0 : 48.0));
        }
        testing::write_scaled_file(scratch.file(str("until_", end, ".h5")), fields.slice(0, begin, end).contiguous(),
                                   kInFile, hours, {}, "hours since 1900-01-01");
        begin = end;
      }
    });
  }

  static at::Tensor values() {
    at::Tensor all = at::randn({kNumTimes, 4, kLatitudes, kLongitudes}, at::kFloat);
    auto* to = all.data_ptr<float>();
    for (int64_t i = 0; i < all.numel(); ++i) {
      to[i] = static_cast<float>(i * 7919 % 1009) / 128.0F;  // the same on all ranks
    }
    return all;
  }

  // The normalized channel at a time.
  at::Tensor at_time(const std::string& name, int64_t time) const {
    const std::vector<std::string> order = {"sst", "u10", "t2m", "tp"};
    const auto stored = std::find(kInFile.begin(), kInFile.end(), name) - kInFile.begin();
    const auto of = static_cast<size_t>(std::find(order.begin(), order.end(), name) - order.begin());
    return (fields[time][stored] - kRowStatistics.mean[of]) / kRowStatistics.std[of];
  }

  WeatherOptions options(const FieldRoles& roles) const {
    WeatherOptions options{.folder = scratch.path(), .normalization = kRowStatistics};
    options.roles = roles;
    options.fields.channels = row_channels(roles, "u10,t2m");
    return options;
  }

  testing::ScratchFolder scratch;
  at::Tensor fields;
};

at::Tensor computed(const Grid& grid, const char* name, double hours) {
  const at::Tensor field = at::empty({kLatitudes, kLongitudes}, at::kFloat);
  constexpr double kDaysTo1970 = 25567.0;
  compute_forcing(*forcing_named(name), (hours / 24.0 - kDaysTo1970) * 86400.0, "standard", grid, {0, kLatitudes},
                  field.data_ptr<float>());
  return field;
}

const FieldRoles kRoles = {.history = 3,
                           .forcings = "cos_zenith,sst,sin_julian_day",
                           .diagnostics = "tp",
                           .statics = "cos_latitude,sin_longitude"};

TEST_CASE("weather roles: inputs, states and targets are these channels of these times, in every way of reading") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const Weather weather(world);
  for (const IoMode io : testing::kIoModes) {
    WeatherOptions options = weather.options(kRoles);
    options.io = io;
    const WeatherDataset dataset(world, options);
    // Times 0 .. 4 and 5 .. 8: two rows before an input, one behind it.
    REQUIRE(dataset.size() == 3);
    const std::vector<int64_t> times = {2, 3, 7};
    CHECK(dataset.input_shape() == std::vector<int64_t>{11, kLatitudes, kLongitudes});
    CHECK(dataset.target_shape() == std::vector<int64_t>{3, kLatitudes, kLongitudes});
    CHECK(dataset.channel_names() == std::vector<std::string>{"u10", "t2m", "tp"});
    const std::vector<int64_t> samples = {2, 0, 1};
    const Batch batch = dataset.read(samples, {.state = true}, 0);
    CHECK_FALSE(batch.states_in_inputs.has_value());
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t t = times[static_cast<size_t>(samples[static_cast<size_t>(i)])];
      const double hours = 1.0e6 + 6.0 * static_cast<double>(t) + (t < 5 ? 0.0 : 48.0);
      const auto of = [&](const char* name, int64_t offset) { return weather.at_time(name, t + offset); };
      const at::Tensor input = at::stack(
          {of("sst", 0), of("u10", 0), of("t2m", 0), of("u10", -1), of("t2m", -1), of("u10", -2), of("t2m", -2),
           computed(dataset.grid(), "cos_zenith", hours), computed(dataset.grid(), "sin_julian_day", hours),
           computed(dataset.grid(), "cos_latitude", 0.0), computed(dataset.grid(), "sin_longitude", 0.0)});
      CHECK(at::allclose(batch.inputs[i], input, 1e-6, 1e-6));
      CHECK(at::allclose(batch.states[i], at::stack({of("u10", 0), of("t2m", 0), of("tp", 0)}), 1e-6, 1e-6));
      CHECK(at::allclose(batch.targets[i], at::stack({of("u10", 1), of("t2m", 1), of("tp", 1)}), 1e-6, 1e-6));
    }
    const Batch stored = dataset.read(samples, {.state = true, .form = ValueForm::kStored}, 0);
    const auto normalized = [](const at::Tensor& part, const StoredScaling* scaling) {
      return BatchNormalizer(*scaling, at::kCPU).normalized(part, at::kFloat);
    };
    CHECK(at::equal(normalized(stored.inputs, stored.scaling), batch.inputs));
    CHECK(at::equal(normalized(stored.states, stored.target_scaling), batch.states));
    CHECK(at::equal(normalized(stored.targets, stored.target_scaling), batch.targets));
    const Batch band = dataset.read(samples, {.state = true, .share = FieldShare{.rows = {2, 5}}}, 0);
    CHECK(at::equal(band.inputs, batch.inputs.narrow(2, 2, 3)));
    CHECK(at::equal(band.states, batch.states.narrow(2, 2, 3)));
    CHECK(at::equal(band.targets, batch.targets.narrow(2, 2, 3)));
  }
}

TEST_CASE("weather roles: without diagnostics the states are channels of the inputs, and no part is read twice") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const Weather weather(world);
  WeatherOptions options = weather.options({.history = 2, .forcings = "sst"});
  options.normalization = part_of(kRowStatistics, {0, 3});
  const WeatherDataset dataset(world, options);
  const std::vector<int64_t> samples = {1, 4};
  const Batch batch = dataset.read(samples, {.state = true}, 0);
  REQUIRE(batch.states_in_inputs == Range{1, 3});
  CHECK_FALSE(batch.states.defined());
  const Batch last_stage = dataset.read(samples, {.input = false, .state = true}, 0);
  CHECK(at::equal(last_stage.states, batch.inputs.narrow(1, 1, 2)));
  CHECK_FALSE(last_stage.inputs.defined());
}

TEST_CASE("weather roles: the states one by one give the inputs of the data set, and forcings go on behind its end") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const comm::MpiGroup self = comm::MpiGroup::alone();
  const Weather weather(world);
  const WeatherDataset dataset(world, weather.options(kRoles));
  const WeatherTimes times(self, weather.options(kRoles));
  const std::vector<int64_t> sample = {2};
  const Batch batch = dataset.read(sample, {.state = true}, 0);
  const WeatherTimes::Place place = times.place(7);
  CHECK(at::equal(times.input(place), batch.inputs[0]));
  CHECK(at::equal(times.read(place.row), batch.states[0]));
  CHECK(at::equal(times.read(place.row + 1), batch.targets[0]));
  const at::Tensor next = times.forcings(place, 1);
  CHECK(at::allclose(next[0], weather.at_time("sst", 8), 1e-6, 1e-6));
  CHECK(at::equal(next[1], computed(dataset.grid(), "cos_zenith", 1.0e6 + 6.0 * 8 + 48.0)));
  WeatherOptions without_sst = weather.options({.forcings = "cos_zenith"});
  without_sst.normalization = part_of(kRowStatistics, {1, 3});
  const WeatherTimes endless(self, without_sst);
  // Before the gap and behind the end: every six hours.
  for (const int64_t start : {4, 8}) {
    const double hours = 1.0e6 + 6.0 * static_cast<double>(start) + (start < 5 ? 0.0 : 48.0);
    CHECK(
        at::equal(endless.forcings(endless.place(start), 3)[0], computed(dataset.grid(), "cos_zenith", hours + 18.0)));
  }
}

TEST_CASE("weather roles: files whose dates go on are read as one file that has all of them") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const comm::MpiGroup self = comm::MpiGroup::alone();
  const Weather one(world), three(world, {2, 4, 7, kNumTimes});
  const std::vector<int64_t> samples = {2, 0, 1};
  for (const IoMode io : testing::kIoModes) {
    WeatherOptions options = three.options(kRoles);
    options.io = io;
    const WeatherDataset whole(world, one.options(kRoles)), parts(world, options);
    CHECK(parts.num_gaps() == 1);
    REQUIRE(parts.size() == whole.size());
    const Batch expected = whole.read(samples, {.state = true}, 0), batch = parts.read(samples, {.state = true}, 0);
    CHECK(at::equal(batch.inputs, expected.inputs));
    CHECK(at::equal(batch.states, expected.states));
    CHECK(at::equal(batch.targets, expected.targets));
  }
  const WeatherTimes whole(self, one.options(kRoles)), parts(self, three.options(kRoles));
  REQUIRE(parts.size() == kNumTimes);
  for (int64_t time = 2; time < 4; ++time) {
    const WeatherTimes::Place place = parts.place(time);
    CHECK(place.after() == 4 - time);
    CHECK(at::equal(parts.input(place), whole.input(whole.place(time))));
    CHECK(at::equal(parts.forcings(place, 1), whole.forcings(whole.place(time), 1)));
  }
  CHECK((parts.in_file(3).file == 1 && parts.in_file(3).row == 1));
  // Copies of what the first samples need.
  if (world.size() == 1) {
    for (const int64_t count : {1, 2, 3}) {
      WeatherOptions staged = three.options(kRoles);
      staged.stage_folder = one.scratch.path();
      staged.stage_samples = count;
      const WeatherDataset copied(world, staged);
      for (int64_t sample = 0; sample < count; ++sample) {
        CHECK(at::equal(copied.read({&sample, 1}, {}, 0).inputs,
                        whole.input(whole.place(sample < 2 ? sample + 2 : 7)).unsqueeze(0)));
      }
    }
  }
}

TEST_CASE("weather roles: a history that no run of times has is refused") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const Weather weather(world);
  FieldRoles roles = kRoles;
  roles.history = 5;
  const Error error =
      testing::agreed_error(world, [&] { const WeatherDataset dataset(world, weather.options(roles)); });
  CHECK(error.error_class() == ErrorClass::kBadData);
  CHECK(contains(error.message(), "with 5 states in the input"));
  CHECK(contains(error.hint(), "6 times without a gap"));
}

}  // namespace
}  // namespace vit_hybrid::data
