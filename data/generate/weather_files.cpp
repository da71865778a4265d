// WeatherFiles: the files of a generated weather data set, and the integration of its years into them, round by round.
#include "data/generate/weather_files.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "data/datasets/npy.h"
#include "data/generate/weather_channels.h"
#include "data/generate/weather_samples.h"
#include "data/hdf5/hdf5_writer.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr int64_t kBlockBytes = int64_t{4} << 20;  // of the samples between two writes
const std::string kFields = "fields";
constexpr std::array kStatistics = {"global_means", "global_stds", "time_means"};

int64_t sample_bytes(const GenerateWeatherOptions& options) {
  return options.channels * options.height * options.width * static_cast<int64_t>(sizeof(float));
}

}  // namespace

/// This rank's year of a round on its way into its file.
class WeatherFiles::YearTask {
 public:
  YearTask(const GenerateWeatherOptions& options, int64_t year, Hdf5Writer& file)
      : options_(options),
        year_(year_options(options), options.first_year + year),
        statistics_(make_statistics(options)),
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
    next_samples(year_, statistics_, block);
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
  return std::max<int64_t>(kBlockBytes / sample_bytes(options_), 1);
}

int64_t WeatherFiles::samples_of_round() const {
  return spin_up_samples(options_.sample_interval_hours) + options_.steps_per_year;
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
  const int64_t spin_up = spin_up_samples(options_.sample_interval_hours);
  const int64_t total = samples_of_round();
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
  FieldStatistics total = make_statistics(options_);
  for (int64_t year = 0; year < options_.train_years; ++year) {
    merge_year(year, total);
  }
  comm::agreed_on_rank_0(group_, [&] {
    const StatisticsTensors tensors = statistics_tensors(total, options_);
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
  FieldStatistics of_year = make_statistics(options_);
  std::vector<double> numbers(static_cast<size_t>(of_year.packed_size()));
  if (owner == group_.rank()) {
    numbers = statistics_[static_cast<size_t>(year - years_.part(owner).begin)].pack();
  }
  broadcast_pieces(group_, numbers.data(), std::ssize(numbers) * static_cast<int64_t>(sizeof(double)), owner);
  of_year.unpack(numbers);
  total.merge(of_year);
}

}  // namespace vit_hybrid::data
