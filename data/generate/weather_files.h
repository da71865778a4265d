// WeatherFiles: the files of a generated weather data set, and the integration of its years into them, round by round.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/generate/field_statistics.h"
#include "data/generate/generate_weather.h"
#include "data/generate/output_folder.h"
#include "src/base/partition.h"
#include "src/base/progress.h"

namespace vit_hybrid::data {

class Hdf5Writer;

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
  /// What a round adds to the progress: samples of a year, and those of its spin-up.
  int64_t samples_of_round() const;
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

}  // namespace vit_hybrid::data
