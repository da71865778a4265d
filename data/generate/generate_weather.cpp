// Which rank makes which rows of which file, round by round; statistics; and years that stay in memory.
#include "data/generate/generate_weather.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "data/datasets/normalization.h"
#include "data/datasets/npy.h"
#include "data/generate/output_folder.h"
#include "data/generate/planetary_waves.h"
#include "data/tools/row_statistics.h"
#include "data/zarr/zarr_writer.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/log.h"
#include "src/base/partition.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

constexpr double kSpinUpHours = 30.0 * 24.0;

// Samples before the first one that counts: the flow needs 30 days to forget its initial state.
int64_t spin_up_samples(const GenerateWeatherOptions& options) {
  return static_cast<int64_t>(std::ceil(kSpinUpHours / options.sample_interval_hours));
}

// Of a year, with those of its spin-up.
int64_t samples_to_make(const GenerateWeatherOptions& options) {
  return spin_up_samples(options) + options.steps_per_year;
}

// `bytes` at `data` become those of rank `root`, in pieces that a control message can carry. Collective over `group`.
void broadcast_pieces(const comm::MpiGroup& group, void* data, int64_t bytes, int root) {
  constexpr int64_t kPiece = int64_t{64} << 20;
  for (int64_t first = 0; first < bytes; first += kPiece) {
    group.broadcast(static_cast<char*>(data) + first, std::min(kPiece, bytes - first), root);
  }
}

// The channels that the options ask for, whichever weather.
std::vector<WaveChannel> waves_of(const GenerateWeatherOptions& options) {
  return wave_channels(options.channel_names.empty() ? usual_wave_channels(options.channels) : options.channel_names);
}

std::vector<GeneratedChannel> channels_of(const GenerateWeatherOptions& options) {
  std::vector<GeneratedChannel> channels;
  if (options.weather == WeatherKind::kWaves) {
    const std::vector<WaveChannel> waves = waves_of(options);
    std::transform(waves.begin(), waves.end(), std::back_inserter(channels), [](const auto& w) { return w.channel; });
    return channels;
  }
  const WeatherChannels known(options.channels);
  for (size_t i = 0; i < known.names().size(); ++i) {
    channels.push_back({known.names()[i], known.names()[i], 0.0, known.units()[i]});
  }
  return channels;
}

// With commas between them.
std::string list_of(const std::vector<GeneratedChannel>& channels, std::string GeneratedChannel::*text) {
  std::vector<std::string> texts;
  std::transform(channels.begin(), channels.end(), std::back_inserter(texts), [&](const auto& c) { return c.*text; });
  return join(texts, ",");
}

/// The files of the data set, in the order of their years, and who makes which rows of them. Year `i`, counted over
/// training and validation, of shallow water belongs to the rank that Partition says: in round r every rank integrates
/// its r-th year. Of waves all ranks share the rows of a file, and a round is a file. The files of a round are created,
/// and ended, by all ranks together.
class WeatherFiles {
 public:
  /// `options` and `group` outlive it.
  WeatherFiles(const GenerateWeatherOptions& options, const comm::MpiGroup& group);

  /// Checks and makes the folders as prepare_output() does, and removes statistics of an earlier data set: whoever
  /// reads what is half replaced is told that they are missing. On one rank.
  std::unique_ptr<FolderLock> prepare() const;
  int64_t num_rounds() const { return is_shared() ? std::ssize(files_) : years_.largest(); }
  /// Samples that the busiest rank makes in a round.
  int64_t samples_of_round() const;
  /// "4 training and 1 validation years of 730 samples, 8 x 32 x 64".
  std::string text() const;
  /// Collective over the group; errors are agreed after every few samples, so that no rank waits for long.
  void write_round(int64_t round, Progress& progress);
  /// Writes stats/*, after the last round. Collective over the group.
  void write_statistics();

 private:
  /// A file, and its years, counted from the first of the data set.
  struct YearFile {
    std::string name;
    Range years;
  };
  /// What this rank makes in a round: rows of one of the files, none where it has nothing to do.
  struct Share {
    std::vector<int64_t> files;
    int64_t mine = 0;  ///< of `files`
    Range rows;
  };
  class RowTask;

  bool is_shared() const { return options_.weather == WeatherKind::kWaves; }
  int64_t num_rows(const YearFile& file) const { return file.years.size() * options_.steps_per_year; }
  std::vector<YearFile> planned_files() const;
  PlannedOutput planned_output() const;
  std::string statistics_file(const char* name) const;
  Share share_of_round(int64_t round) const;
  WeatherContent content_of(const YearFile& file) const;
  std::unique_ptr<WeatherFile> create_file(const YearFile& file) const;
  int64_t sample_bytes() const;
  int64_t samples_per_block() const;
  /// Adds the statistics of a year, held by its owner, to `total` on all ranks.
  void merge_year(int64_t year, FieldStatistics& total) const;
  void write_statistics_of_years() const;
  void write_statistics_of_files() const;

  const GenerateWeatherOptions& options_;
  const comm::MpiGroup& group_;
  std::vector<GeneratedChannel> channels_;
  Partition years_;
  std::vector<YearFile> files_;
  std::optional<PlanetaryWaves> waves_;
  std::vector<FieldStatistics> statistics_;  // of this rank's years, in their order
};

constexpr int64_t kSampleBlockBytes = int64_t{4} << 20;  // of the samples between two writes
constexpr std::array kStatistics = {"global_means", "global_stds", "time_means"};

std::string year_text(int64_t year) {
  char text[24];
  std::snprintf(text, sizeof text, "%04lld", static_cast<long long>(year));
  return text;
}

/// The points of the globe as PlanetaryWaves has them, degrees.
Grid globe(int64_t height, int64_t width) {
  Grid grid;
  for (int64_t row = 0; row < height; ++row) {
    grid.latitudes.push_back(90.0 - 180.0 * static_cast<double>(row) / static_cast<double>(height - 1));
  }
  for (int64_t column = 0; column < width; ++column) {
    grid.longitudes.push_back(360.0 * static_cast<double>(column) / static_cast<double>(width));
  }
  return grid;
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
  auto* to = weather.fields.mutable_data_ptr<float>();
  for (int64_t i = 0; i < options.steps_per_year; ++i, to += weather.fields.stride(0)) {
    year.next_sample(to);
    statistics.add(to);
    count(progress);
  }
  const StatisticsTensors tensors = statistics.tensors();
  weather.means = tensors.means;
  weather.stds = tensors.stds;
  weather.time_means = tensors.time_means;
  return weather;
}

}  // namespace

/// Rows of a file on their way into it.
class WeatherFiles::RowTask {
 public:
  /// Writes the next row to [C, H, W] floats, or only advances to it.
  using MakeRow = std::function<void(int64_t row, float* to)>;

  /// Of rows of this shape. What is referred to outlives it.
  RowTask(std::vector<int64_t> shape, MakeRow make_row, WeatherFile& file)
      : shape_(std::move(shape)), make_row_(std::move(make_row)), file_(file) {}

  /// Makes rows, and adds them to `statistics` where there are some; those before 0 are spin-up, and no call goes
  /// across 0.
  void run(Range rows, std::optional<FieldStatistics>& statistics) {
    if (rows.begin < 0) {
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        make_row_(row, nullptr);
      }
      return;
    }
    const at::Tensor block = at::empty({rows.size(), shape_[0], shape_[1], shape_[2]});
    auto* to = block.mutable_data_ptr<float>();
    for (int64_t row = rows.begin; row < rows.end; ++row, to += block.stride(0)) {
      make_row_(row, to);
      if (statistics) statistics->add(to);
    }
    file_.write(rows.begin, block);
  }

 private:
  std::vector<int64_t> shape_;
  MakeRow make_row_;
  WeatherFile& file_;
};

WeatherFiles::WeatherFiles(const GenerateWeatherOptions& options, const comm::MpiGroup& group)
    : options_(options),
      group_(group),
      channels_(channels_of(options)),
      years_(options.train_years + options.valid_years, group.size()),
      files_(planned_files()) {
  if (is_shared()) {
    waves_.emplace(waves_of(options), options.height, options.width, options.seed);
  }
}

std::vector<WeatherFiles::YearFile> WeatherFiles::planned_files() const {
  const char* const ending = ending_of(options_.format);
  if (is_shared() && options_.format == WeatherFormat::kZarr) {
    return {{str("weather", ending), {0, years_.count()}}};
  }
  std::vector<YearFile> files;
  for (int64_t year = 0; year < years_.count(); ++year) {
    const char* const part = year < options_.train_years ? "train/" : "valid/";
    files.push_back({str(part, year_text(options_.first_year + year), ending), {year, year + 1}});
  }
  return files;
}

int64_t WeatherFiles::sample_bytes() const {
  return std::ssize(channels_) * options_.height * options_.width * static_cast<int64_t>(sizeof(float));
}

int64_t WeatherFiles::samples_per_block() const {
  return std::max<int64_t>(kSampleBlockBytes / sample_bytes(), 1);
}

int64_t WeatherFiles::samples_of_round() const {
  return is_shared() ? Partition(num_rows(files_.front()), group_.size()).largest() : samples_to_make(options_);
}

std::string WeatherFiles::text() const {
  return str(options_.train_years, " training and ", options_.valid_years, " validation years of ",
             options_.steps_per_year, " samples, ", channels_.size(), " x ", options_.height, " x ", options_.width);
}

PlannedOutput WeatherFiles::planned_output() const {
  PlannedOutput output;
  output.folder = options_.out;
  for (const YearFile& file : files_) {
    if (options_.format == WeatherFormat::kZarr) {
      output.stores.push_back({file.name, zarr_arrays(content_of(file))});
    } else {
      output.files.push_back(file.name);
    }
  }
  for (const char* name : kStatistics) {
    output.files.push_back(statistics_file(name));
  }
  output.files.push_back(str("stats/", kStatisticsChannels));
  output.parts = {"train", "valid"};
  output.bytes = (years_.count() * options_.steps_per_year + 1) * sample_bytes();
  output.existing = options_.overwrite ? ExistingFiles::kReplace : ExistingFiles::kRefuse;
  return output;
}

std::string WeatherFiles::statistics_file(const char* name) const {
  return str("stats/", name, ".npy");
}

std::unique_ptr<FolderLock> WeatherFiles::prepare() const {
  const PlannedOutput output = planned_output();
  auto lock = prepare_output(output);
  for (const std::string& file : output.files) {
    if (file.starts_with("stats/")) {
      std::remove(str(options_.out, "/", file).c_str());
    }
  }
  return lock;
}

WeatherFiles::Share WeatherFiles::share_of_round(int64_t round) const {
  Share share;
  if (is_shared()) {
    share.files = {round};
    share.rows = Partition(num_rows(files_[static_cast<size_t>(round)]), group_.size()).part(group_.rank());
    return share;
  }
  for (int rank = 0; rank < group_.size(); ++rank) {
    const Range part = years_.part(rank);
    if (round < part.size()) {
      if (rank == group_.rank()) {
        share.mine = std::ssize(share.files);
        share.rows = {-spin_up_samples(options_), options_.steps_per_year};
      }
      share.files.push_back(part.begin + round);
    }
  }
  return share;
}

WeatherContent WeatherFiles::content_of(const YearFile& file) const {
  WeatherContent content;
  content.channels = channels_;
  content.height = options_.height;
  content.width = options_.width;
  for (int64_t year = file.years.begin; year < file.years.end; ++year) {
    const double begin = begin_of_year(options_.first_year + year);
    for (int64_t step = 0; step < options_.steps_per_year; ++step) {
      content.times.push_back(begin + static_cast<double>(step) * options_.sample_interval_hours);
    }
  }
  content.has_times = is_shared() || options_.format != WeatherFormat::kHdf5;
  content.simulation = is_shared() ? "" : str("year ", options_.first_year + file.years.begin);
  content.attributes = {
      {"title", is_shared() ? "planetary waves in channels of ERA5"
                            : "rotating shallow-water flow on a periodic plane; rows from north to south"},
      {"year", options_.first_year + file.years.begin},
      {"seed", str(options_.seed)},
      {"sample_interval_hours", options_.sample_interval_hours}};
  if (options_.format != WeatherFormat::kHdf5) {
    content.attributes.emplace_back("Conventions", "CF-1.8");
  }
  if (waves_) {
    content.grid = globe(options_.height, options_.width);
    content.statics = {
        {"geopotential_at_surface", "m**2 s**-2", "surface_geopotential", waves_->geopotential_at_surface()},
        {"land_sea_mask", "1", "land_area_fraction", waves_->land_sea_mask()}};
  }
  return content;
}

std::unique_ptr<WeatherFile> WeatherFiles::create_file(const YearFile& file) const {
  return create_weather_file(options_.format, group_, str(options_.out, "/", file.name), content_of(file));
}

void WeatherFiles::write_round(int64_t round, Progress& progress) {
  const Share share = share_of_round(round);
  std::vector<std::unique_ptr<WeatherFile>> files;
  for (const int64_t file : share.files) {
    files.push_back(create_file(files_[static_cast<size_t>(file)]));
  }
  std::optional<RowTask> task;
  std::optional<FieldStatistics> statistics;  // of a year of shallow water, which no other rank makes
  comm::agreed(group_, [&] {
    if (share.rows.empty()) return;
    const YearFile& mine = files_[static_cast<size_t>(share.files[static_cast<size_t>(share.mine)])];
    RowTask::MakeRow make_row;
    if (is_shared()) {
      make_row = [this, times = content_of(mine).times](int64_t row, float* to) {
        waves_->sample(times[static_cast<size_t>(row)], to);
      };
    } else {
      const auto year = std::make_shared<WeatherYear>(options_, options_.first_year + mine.years.begin);
      statistics.emplace(options_.channels, options_.height, options_.width);
      make_row = [year](int64_t, float* to) { to == nullptr ? year->advance() : year->next_sample(to); };
    }
    task.emplace(std::vector<int64_t>{std::ssize(channels_), options_.height, options_.width}, std::move(make_row),
                 *files[static_cast<size_t>(share.mine)]);
  });
  const int64_t spin_up = is_shared() ? 0 : spin_up_samples(options_);
  const int64_t total = samples_of_round();
  const int64_t block = samples_per_block();
  for (int64_t first = 0, last = 0; first < total; first = last) {
    last = std::min(first + block, first < spin_up ? spin_up : total);
    comm::agreed(group_, [&] {
      const Range rows = {share.rows.begin + first, std::min(share.rows.begin + last, share.rows.end)};
      if (rows.begin < rows.end) task->run(rows, statistics);
    });
    progress.add(last - first);
  }
  for (const auto& file : files) {
    file->finish();
  }
  if (statistics) statistics_.push_back(std::move(*statistics));
}

// What is stored is read again: nobody need keep the sums of a whole state, and rows are of any rank.
void WeatherFiles::write_statistics_of_files() const {
  WriteStatsOptions stats;
  const bool is_one = files_.front().years.size() > 1 || options_.format == WeatherFormat::kZarr;
  stats.inputs = {str(options_.out, "/", is_one ? files_.front().name : "train")};
  stats.out = options_.out + "/stats";
  stats.fields.channels = options_.format == WeatherFormat::kHdf5 ? "" : list_of(channels_, &GeneratedChannel::name);
  if (is_one && options_.valid_years > 0) {
    stats.fields.dates.span =
        str(year_text(options_.first_year), "/", year_text(options_.first_year + options_.train_years - 1));
  }
  stats.time_means = true;
  stats.overwrite = true;
  write_stats(group_, stats);
}

void WeatherFiles::write_statistics() {
  if (is_shared()) {
    write_statistics_of_files();
  } else {
    write_statistics_of_years();
  }
}

void WeatherFiles::write_statistics_of_years() const {
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
    WholeFile list(str(options_.out, "/stats/", kStatisticsChannels));
    list.write(channels_text(list_of(channels_, &GeneratedChannel::name), list_of(channels_, &GeneratedChannel::unit)));
    list.finish();
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
  const bool is_of_waves = options.weather == WeatherKind::kWaves;
  OptionProblems problems;
  problems.check<int64_t>("train_years", options.train_years, 1, 1000);
  problems.check<int64_t>("valid_years", options.valid_years, 0, 1000);
  problems.check<int64_t>("first_year", options.first_year, 0, 9999);
  problems.check<int64_t>("steps_per_year", options.steps_per_year, 2, 1000000);
  problems.check<int64_t>(is_of_waves ? "channels of waves" : "channels", options.channels, 1,
                          is_of_waves ? kNumUsualWaveChannels : 256);
  problems.check<int64_t>("height", options.height, 8, 16384);
  problems.check<int64_t>("width", options.width, 8, 16384);
  problems.check<double>("sample_interval_hours", options.sample_interval_hours, 0.25, 240.0);
  if (problems.none()) {
    if (!is_of_waves && !options.channel_names.empty()) {
      throw Error(ErrorClass::kUsage, str("channels are '", shown(options.channel_names), "'"),
                  "shallow water takes a number of them; names are for --weather waves");
    }
    const int64_t last_year = options.first_year + options.train_years + options.valid_years - 1;
    problems.check<int64_t>("the last year", last_year, 0, 9999);
    const double years = static_cast<double>(options.train_years + options.valid_years);
    if (years > 1 && (is_of_waves || options.format != WeatherFormat::kHdf5)) {
      constexpr double kHoursPerYear = 365.0 * 24.0;  // dates of one year that reach into the next are there twice
      problems.check<double>("steps_per_year x sample_interval_hours",
                             static_cast<double>(options.steps_per_year) * options.sample_interval_hours, 0.0,
                             kHoursPerYear);
    }
    const auto channels = static_cast<double>(channels_of(options).size());
    const double sample = channels * static_cast<double>(options.height * options.width) * sizeof(float);
    problems.check<double>("the data set's number of bytes",
                           years * static_cast<double>(options.steps_per_year) * sample, 0.0, 1e18);
  }
  problems.throw_if_any();
}

void generate_weather(const GenerateWeatherOptions& options, const comm::MpiGroup& group,
                      const GenerationProgress& progress) {
  comm::agreed(group, [&] { check_options(options); });
  WeatherFiles files(options, group);
  std::unique_ptr<FolderLock> lock;
  comm::agreed_on_rank_0(group, [&] { lock = files.prepare(); });
  if (progress && group.rank() == 0) {
    const int64_t most =
        options.weather == WeatherKind::kWaves ? options.steps_per_year : options.train_years + options.valid_years;
    progress(str("generating ", files.text(), " in ", options.out, ", on ", std::min<int64_t>(most, group.size()),
                 " of ", group.size(), " ranks at a time"));
  }
  {
    Progress generated("generating weather in " + options.out, files.num_rounds() * files.samples_of_round());
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
