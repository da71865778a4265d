// Fields from a state; the integration of years into files, round by round, and years that stay in memory.
#include "data/generate/generate_weather.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>

#include "data/datasets/npy.h"
#include "data/generate/field_statistics.h"
#include "data/generate/output_folder.h"
#include "data/generate/planet.h"
#include "data/generate/shallow_water.h"
#include "data/hdf5/hdf5_writer.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/partition.h"
#include "src/base/random.h"
#include "src/base/signals.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

struct Channel {
  const char* name;
  const char* unit;
};
constexpr std::array<Channel, 7> kBase{{{"u", "m/s"},
                                        {"v", "m/s"},
                                        {"height", "m"},
                                        {"vorticity", "1/s"},
                                        {"divergence", "1/s"},
                                        {"potential_vorticity", "1/(m s)"},
                                        {"kinetic_energy", "m^2/s^2"}}};
constexpr auto kNumBase = static_cast<int64_t>(kBase.size());

/// Writes value(j, i) of every cell, northernmost row first.
template <class Value>
void write_cells(const CGrid& grid, float* to, const Value& value) {
  for_each_row(grid.rows(), grid.columns(), [&](int64_t j) {
    float* row = to + (grid.rows() - 1 - j) * grid.columns();
    for (int64_t i = 0; i < grid.columns(); ++i) {
      row[i] = static_cast<float>(value(j, i));
    }
  });
}

void write_centres(const CGrid& grid, const PeriodicField& field, float* to) {
  write_cells(grid, to, [&](int64_t j, int64_t i) { return field.at(j, i); });
}

void write_corners(const CGrid& grid, const PeriodicField& field, float* to) {
  write_cells(grid, to, [&](int64_t j, int64_t i) {
    return 0.25 * (field.at(j, i) + field.at(j, i + 1) + field.at(j + 1, i) + field.at(j + 1, i + 1));
  });
}

void write_base_channel(const CGrid& grid, const ShallowWaterState& state, int64_t channel, PeriodicField& scratch,
                        float* to) {
  switch (channel) {
    case 0:
      return write_cells(grid, to,
                         [&](int64_t j, int64_t i) { return 0.5 * (state.u().at(j, i) + state.u().at(j, i + 1)); });
    case 1:
      return write_cells(grid, to,
                         [&](int64_t j, int64_t i) { return 0.5 * (state.v().at(j, i) + state.v().at(j + 1, i)); });
    case 2:
      return write_centres(grid, state.h(), to);
    case 3:
      grid.vorticity(state, scratch);
      return write_corners(grid, scratch, to);
    case 4:
      grid.divergence(state, scratch);
      return write_centres(grid, scratch, to);
    case 5:
      grid.potential_vorticity(state, scratch);
      return write_corners(grid, scratch, to);
    default:
      grid.kinetic_energy(state, scratch);
      return write_centres(grid, scratch, to);
  }
}

}  // namespace

WeatherChannels::WeatherChannels(int64_t count) {
  for (int64_t channel = 0; channel < count; ++channel) {
    const bool base = channel < kNumBase;
    names_.push_back(base ? kBase[static_cast<size_t>(channel)].name : str("tracer_", channel - kNumBase + 1));
    units_.push_back(base ? kBase[static_cast<size_t>(channel)].unit : "1");
  }
}

int64_t WeatherChannels::num_tracers() const {
  return std::max<int64_t>(count() - kNumBase, 0);
}

void WeatherChannels::sample(const CGrid& grid, const ShallowWaterState& state, float* to) const {
  PeriodicField scratch = grid.make_field();
  for (int64_t channel = 0; channel < count(); ++channel) {
    float* field = to + channel * grid.rows() * grid.columns();
    if (channel < kNumBase) {
      write_base_channel(grid, state, channel, scratch, field);
    } else {
      grid.tracer(state, channel - kNumBase, scratch);
      write_centres(grid, scratch, field);
    }
  }
}

namespace {

constexpr double kSecondsPerHour = 3600.0;
constexpr double kSpinUpHours = 30.0 * 24.0;

int64_t rounded_up(double value) {
  return static_cast<int64_t>(std::ceil(value));
}

RandomStream year_stream(uint64_t seed, int64_t year) {
  return {seed, Purpose::kSyntheticData, name_key("weather"), static_cast<uint64_t>(year)};
}

// Samples before the first one that counts: the flow needs 30 days to forget its initial state.
int64_t spin_up_samples(const GenerateWeatherOptions& options) {
  return rounded_up(kSpinUpHours / options.sample_interval_hours);
}

// Of a year, with those of its spin-up.
int64_t samples_to_make(const GenerateWeatherOptions& options) {
  return spin_up_samples(options) + options.steps_per_year;
}

// The integration of one year. Its samples depend on the options and the year alone.
class WeatherYear {
 public:
  WeatherYear(const GenerateWeatherOptions& options, int64_t year);

  // Advances by one sample interval. Error(kInternal) if the flow is not finite any more.
  void advance();
  // Fills `block` [n, C, H, W], float32, with the next n samples and adds them to `statistics`.
  void next_samples(const at::Tensor& block, FieldStatistics& statistics);

 private:
  int64_t year_;
  WeatherChannels channels_;
  ShallowWater model_;
  FlowDriving driving_;
  ShallowWaterState state_;
  int64_t steps_per_sample_;
  double time_step_;
};

WeatherYear::WeatherYear(const GenerateWeatherOptions& options, int64_t year)
    : year_(year),
      channels_(options.channels),
      model_(planet_plane(options.height, options.width), channels_.num_tracers()),
      driving_(model_.grid(), planet_driving(model_.grid(), channels_.num_tracers()), channels_.num_tracers()),
      state_(planet_initial_state(model_.grid(), driving_.options(), year_stream(options.seed, year),
                                  channels_.num_tracers())) {
  const double interval = options.sample_interval_hours * kSecondsPerHour;
  const double longest = std::min(model_.stable_time_step(), driving_.stable_time_step());
  steps_per_sample_ = rounded_up(interval / longest);
  time_step_ = interval / static_cast<double>(steps_per_sample_);
}

void WeatherYear::advance() {
  for (int64_t step = 0; step < steps_per_sample_; ++step) {
    model_.step(state_, time_step_);
    driving_.apply(state_, time_step_);
  }
  for (const PeriodicField& field : state_.fields) {
    if (!std::isfinite(field.sum())) {
      throw Error(ErrorClass::kInternal,
                  str("the generated weather of year ", year_, " blew up (time step ", time_step_, " s)"),
                  "this is a defect of the generator, please report it with your options");
    }
  }
}

void WeatherYear::next_samples(const at::Tensor& block, FieldStatistics& statistics) {
  auto* to = block.mutable_data_ptr<float>();
  for (int64_t i = 0; i < block.size(0); ++i, to += block.stride(0)) {
    advance();
    channels_.sample(model_.grid(), state_, to);
    statistics.add(to);
  }
}

// `bytes` at `data` become those of rank `root`, in pieces that a control message can carry. Collective over `group`.
void broadcast_pieces(const comm::MpiGroup& group, void* data, int64_t bytes, int root) {
  constexpr int64_t kPiece = int64_t{64} << 20;
  for (int64_t first = 0; first < bytes; first += kPiece) {
    group.broadcast(static_cast<char*>(data) + first, std::min(kPiece, bytes - first), root);
  }
}

/// Year `i` of the data set, counted over training and validation, belongs to the rank that Partition says. In round r
/// every rank integrates its r-th year; the files of a round are created, and ended, by all ranks together.
class WeatherFiles {
 public:
  /// `options` and `group` outlive it.
  WeatherFiles(const GenerateWeatherOptions& options, const comm::MpiGroup& group);

  /// Checks and makes the folders as prepare_output() does, and removes statistics of an earlier data set: whoever
  /// reads what is half replaced is told that they are missing. On one rank.
  void prepare() const;
  int64_t num_rounds() const { return years_.largest(); }
  /// Collective over the group; errors are agreed after every few samples, so that no rank waits for long.
  void write_round(int64_t round, Progress& progress);
  /// Writes stats/*.npy, after the last round. Collective over the group.
  void write_statistics();

 private:
  class YearTask;

  PlannedOutput planned_output() const;
  std::string year_file(int64_t year) const;
  std::string statistics_file(const char* name) const;
  std::vector<int64_t> years_of_round(int64_t round) const;
  std::unique_ptr<Hdf5Writer> create_year_file(int64_t year) const;
  int64_t samples_per_block() const;
  /// Adds the statistics of a year, held by its owner, to `total` on all ranks.
  void merge_year(int64_t year, FieldStatistics& total) const;

  const GenerateWeatherOptions& options_;
  const comm::MpiGroup& group_;
  Partition years_;
  std::vector<FieldStatistics> statistics_;  // of this rank's years, in their order
};

constexpr int64_t kSampleBlockBytes = int64_t{4} << 20;  // of the samples between two writes
const std::string kFields = "fields";
constexpr std::array kStatistics = {"global_means", "global_stds", "time_means"};

int64_t sample_bytes(const GenerateWeatherOptions& options) {
  return options.channels * options.height * options.width * static_cast<int64_t>(sizeof(float));
}

std::string size_text(const GenerateWeatherOptions& options) {
  return str(options.train_years, " training and ", options.valid_years, " validation years of ",
             options.steps_per_year, " samples, ", options.channels, " x ", options.height, " x ", options.width);
}

/// A year of the right shapes and any numbers.
WeatherInMemory empty_year(const GenerateWeatherOptions& options) {
  check_options(options);
  WeatherInMemory weather;
  weather.fields = at::empty({options.steps_per_year, options.channels, options.height, options.width});
  weather.means = at::empty({1, options.channels, 1, 1});
  weather.stds = at::empty({1, options.channels, 1, 1});
  weather.time_means = at::empty({1, options.channels, options.height, options.width});
  weather.channel_names = WeatherChannels(options.channels).names();
  return weather;
}

// Counts what is done, and ends it when a signal asks for that.
void count(Progress& progress) {
  progress.add();
  if (const int signal = stop_signal(); signal != 0) {
    throw Error(ErrorClass::kTemporary,
                str("stopped by ", signal_name(signal), " while weather was generated in memory"));
  }
}

std::string in_memory_text(const std::vector<GenerateWeatherOptions>& years) {
  int64_t samples = 0;
  for (const GenerateWeatherOptions& year : years) {
    samples += year.steps_per_year;
  }
  const GenerateWeatherOptions& first = years.front();
  return str("generating ", samples, " samples of weather in memory, ", first.channels, " x ", first.height, " x ",
             first.width);
}

WeatherInMemory make_year(const GenerateWeatherOptions& options, Progress& progress) {
  WeatherYear year(options, options.first_year);
  for (int64_t i = 0; i < spin_up_samples(options); ++i) {
    year.advance();
    count(progress);
  }
  WeatherInMemory weather = empty_year(options);
  FieldStatistics statistics(options.channels, options.height, options.width);
  for (int64_t i = 0; i < options.steps_per_year; ++i) {
    year.next_samples(weather.fields.narrow(0, i, 1), statistics);
    count(progress);
  }
  const StatisticsTensors tensors = statistics.tensors();
  weather.means = tensors.means;
  weather.stds = tensors.stds;
  weather.time_means = tensors.time_means;
  return weather;
}

}  // namespace

/// This rank's year of a round on its way into its file.
class WeatherFiles::YearTask {
 public:
  YearTask(const GenerateWeatherOptions& options, int64_t year, Hdf5Writer& file)
      : options_(options),
        year_(options, options.first_year + year),
        statistics_(options.channels, options.height, options.width),
        file_(file) {}

  /// Advances to sample `end`; samples before 0 are spin-up, and no call goes across 0.
  void run(int64_t begin, int64_t end) {
    if (begin < 0) {
      for (int64_t sample = begin; sample < end; ++sample) {
        year_.advance();
      }
      return;
    }
    const at::Tensor block = at::empty({end - begin, options_.channels, options_.height, options_.width});
    year_.next_samples(block, statistics_);
    file_.write(kFields, std::array<int64_t, 4>{begin, 0, 0, 0}, block);
  }
  const FieldStatistics& statistics() const { return statistics_; }

 private:
  const GenerateWeatherOptions& options_;
  WeatherYear year_;
  FieldStatistics statistics_;
  Hdf5Writer& file_;
};

WeatherFiles::WeatherFiles(const GenerateWeatherOptions& options, const comm::MpiGroup& group)
    : options_(options), group_(group), years_(options.train_years + options.valid_years, group.size()) {}

std::string WeatherFiles::year_file(int64_t year) const {
  char name[48];
  std::snprintf(name, sizeof name, "%s/%04lld.h5", year < options_.train_years ? "train" : "valid",
                static_cast<long long>(options_.first_year + year));
  return name;
}

PlannedOutput WeatherFiles::planned_output() const {
  PlannedOutput output;
  output.folder = options_.out;
  for (int64_t year = 0; year < years_.count(); ++year) {
    output.files.push_back(year_file(year));
  }
  for (const char* name : kStatistics) {
    output.files.push_back(statistics_file(name));
  }
  output.parts = {"train", "valid"};
  output.bytes = (years_.count() * options_.steps_per_year + 1) * sample_bytes(options_);
  output.existing = options_.overwrite ? ExistingFiles::kReplace : ExistingFiles::kRefuse;
  return output;
}

std::string WeatherFiles::statistics_file(const char* name) const {
  return str("stats/", name, ".npy");
}

void WeatherFiles::prepare() const {
  prepare_output(planned_output());
  for (const char* name : kStatistics) {
    std::remove(str(options_.out, "/", statistics_file(name)).c_str());
  }
}

std::vector<int64_t> WeatherFiles::years_of_round(int64_t round) const {
  std::vector<int64_t> years;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const Range part = years_.part(rank);
    if (round < part.size()) years.push_back(part.begin + round);
  }
  return years;
}

std::unique_ptr<Hdf5Writer> WeatherFiles::create_year_file(int64_t year) const {
  const WeatherChannels channels(options_.channels);
  Hdf5DatasetSpec fields;
  fields.name = kFields;
  fields.shape = {options_.steps_per_year, options_.channels, options_.height, options_.width};
  fields.attributes = {{"channels", join(channels.names(), ",")}, {"units", join(channels.units(), ",")}};
  const Hdf5Attributes origin{{"title", "rotating shallow-water flow on a periodic plane; rows from north to south"},
                              {"year", options_.first_year + year},
                              {"seed", str(options_.seed)},
                              {"sample_interval_hours", options_.sample_interval_hours}};
  return std::make_unique<Hdf5Writer>(group_, str(options_.out, "/", year_file(year)),
                                      std::vector<Hdf5DatasetSpec>{fields}, origin);
}

int64_t WeatherFiles::samples_per_block() const {
  return std::max<int64_t>(kSampleBlockBytes / sample_bytes(options_), 1);
}

void WeatherFiles::write_round(int64_t round, Progress& progress) {
  const std::vector<int64_t> years = years_of_round(round);
  std::vector<std::unique_ptr<Hdf5Writer>> files;
  for (const int64_t year : years) {
    files.push_back(create_year_file(year));
  }
  std::optional<YearTask> task;
  comm::agreed(group_, [&] {
    for (size_t i = 0; i < years.size(); ++i) {
      if (years_.part(group_.rank()).contains(years[i])) task.emplace(options_, years[i], *files[i]);
    }
  });
  const int64_t spin_up = spin_up_samples(options_);
  const int64_t total = samples_to_make(options_);
  const int64_t block = samples_per_block();
  for (int64_t first = 0, last = 0; first < total; first = last) {
    last = std::min(first + block, first < spin_up ? spin_up : total);
    comm::agreed(group_, [&] {
      if (task) task->run(first - spin_up, last - spin_up);
    });
    progress.add(last - first);
  }
  for (const auto& file : files) {
    file->finish();
  }
  if (task) statistics_.push_back(task->statistics());
}

void WeatherFiles::write_statistics() {
  FieldStatistics total(options_.channels, options_.height, options_.width);
  for (int64_t year = 0; year < options_.train_years; ++year) {
    merge_year(year, total);
  }
  comm::agreed_on_rank_0(group_, [&] {
    const StatisticsTensors tensors = total.tensors();
    const std::array values = {tensors.means, tensors.stds, tensors.time_means};
    NpyFiles files;
    for (size_t i = 0; i < kStatistics.size(); ++i) {
      files.emplace_back(str(options_.out, "/", statistics_file(kStatistics[i])), values[i]);
    }
    replace_npy(files);
  });
}

void WeatherFiles::merge_year(int64_t year, FieldStatistics& total) const {
  const auto owner = static_cast<int>(years_.owner(year));
  FieldStatistics of_year(options_.channels, options_.height, options_.width);
  std::vector<double> numbers(static_cast<size_t>(of_year.packed_size()));
  if (owner == group_.rank()) {
    numbers = statistics_[static_cast<size_t>(year - years_.part(owner).begin)].pack();
  }
  broadcast_pieces(group_, numbers.data(), std::ssize(numbers) * static_cast<int64_t>(sizeof(double)), owner);
  of_year.unpack(numbers);
  total.merge(of_year);
}

void check_options(const GenerateWeatherOptions& options) {
  OptionProblems problems;
  problems.check<int64_t>("train_years", options.train_years, 1, 1000);
  problems.check<int64_t>("valid_years", options.valid_years, 0, 1000);
  problems.check<int64_t>("first_year", options.first_year, 0, 9999);
  problems.check<int64_t>("steps_per_year", options.steps_per_year, 2, 1000000);
  problems.check<int64_t>("channels", options.channels, 1, 256);
  problems.check<int64_t>("height", options.height, 8, 16384);
  problems.check<int64_t>("width", options.width, 8, 16384);
  problems.check<double>("sample_interval_hours", options.sample_interval_hours, 0.25, 240.0);
  if (problems.none()) {
    const int64_t last_year = options.first_year + options.train_years + options.valid_years - 1;
    problems.check<int64_t>("the last year", last_year, 0, 9999);
    const double years = static_cast<double>(options.train_years + options.valid_years);
    const double sample = static_cast<double>(options.channels * options.height * options.width) * sizeof(float);
    problems.check<double>("the data set's number of bytes",
                           years * static_cast<double>(options.steps_per_year) * sample, 0.0, 1e18);
  }
  problems.throw_if_any();
}

void generate_weather(const GenerateWeatherOptions& options, const comm::MpiGroup& group,
                      const GenerationProgress& progress) {
  comm::agreed(group, [&] { check_options(options); });
  WeatherFiles files(options, group);
  comm::agreed_on_rank_0(group, [&] { files.prepare(); });
  if (progress && group.rank() == 0) {
    const int64_t years = options.train_years + options.valid_years;
    progress(str("generating ", size_text(options), " in ", options.out, ", on ",
                 std::min<int64_t>(years, group.size()), " of ", group.size(), " ranks at a time"));
  }
  {
    Progress generated("generating weather in " + options.out, files.num_rounds() * samples_to_make(options));
    for (int64_t round = 0; round < files.num_rounds(); ++round) {
      files.write_round(round, generated);
    }
  }
  files.write_statistics();
}

WeatherInMemory generate_weather_in_memory(const GenerateWeatherOptions& options) {
  check_options(options);
  Progress progress(in_memory_text({options}), samples_to_make(options));
  return make_year(options, progress);
}

std::vector<WeatherInMemory> generate_weather_in_memory(const std::vector<GenerateWeatherOptions>& years,
                                                        const comm::MpiGroup& group) {
  comm::agreed(group, [&] {
    for (const GenerateWeatherOptions& year : years)
      check_options(year);
  });
  const Partition owners(std::ssize(years), group.size());
  const Range mine = owners.part(group.rank());
  int64_t counts = 0;
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    counts += samples_to_make(years[static_cast<size_t>(i)]);
  }
  Progress progress(in_memory_text(years), counts);
  std::vector<WeatherInMemory> weather;
  comm::agreed(group, [&] {
    for (int64_t i = 0; i < std::ssize(years); ++i) {
      const auto& options = years[static_cast<size_t>(i)];
      weather.push_back(mine.contains(i) ? make_year(options, progress) : empty_year(options));
    }
  });
  for (int64_t i = 0; i < std::ssize(years); ++i) {
    const WeatherInMemory& year = weather[static_cast<size_t>(i)];
    for (const at::Tensor& tensor : {year.fields, year.means, year.stds, year.time_means}) {
      const auto bytes = static_cast<int64_t>(tensor.nbytes());
      broadcast_pieces(group, tensor.mutable_data_ptr(), bytes, static_cast<int>(owners.owner(i)));
    }
  }
  return weather;
}

}  // namespace vit_hybrid::data
