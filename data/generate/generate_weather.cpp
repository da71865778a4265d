// Generation of weather data sets: the check of the options, and the order of the work.
#include "data/generate/generate_weather.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "data/generate/option_range.h"
#include "data/generate/weather_channels.h"
#include "data/generate/weather_files.h"
#include "data/generate/weather_samples.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/partition.h"
#include "src/base/progress.h"
#include "src/base/signals.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

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

// What making a year counts.
int64_t num_counts(const GenerateWeatherOptions& options) {
  return spin_up_samples(options.sample_interval_hours) + options.steps_per_year;
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
  WeatherYear year(year_options(options), options.first_year);
  for (int64_t i = 0; i < spin_up_samples(options.sample_interval_hours); ++i) {
    year.advance();
    count(progress);
  }
  WeatherInMemory weather = empty_year(options);
  FieldStatistics statistics = make_statistics(options);
  for (int64_t i = 0; i < options.steps_per_year; ++i) {
    next_samples(year, statistics, weather.fields.narrow(0, i, 1));
    count(progress);
  }
  const StatisticsTensors tensors = statistics_tensors(statistics, options);
  weather.means = tensors.means;
  weather.stds = tensors.stds;
  weather.time_means = tensors.time_means;
  return weather;
}

}  // namespace

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
    Progress generated("generating weather in " + options.out, files.num_rounds() * files.samples_of_round());
    for (int64_t round = 0; round < files.num_rounds(); ++round) {
      files.write_round(round, generated);
    }
  }
  files.write_statistics();
}

WeatherInMemory generate_weather_in_memory(const GenerateWeatherOptions& options) {
  check_options(options);
  Progress progress(in_memory_text({options}), num_counts(options));
  return make_year(options, progress);
}

std::vector<WeatherInMemory> generate_weather_in_memory(const std::vector<GenerateWeatherOptions>& years,
                                                        const comm::MpiGroup& group) {
  comm::agreed(group, [&] { std::for_each(years.begin(), years.end(), check_options); });
  const Partition owners(std::ssize(years), group.size());
  const Range mine = owners.part(group.rank());
  int64_t counts = 0;
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    counts += num_counts(years[static_cast<size_t>(i)]);
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
