// The year files of a weather data set: which there are, and how their times make pairs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vit_hybrid::data {

/// The *.h5 files of a folder, sorted by year, the last four characters of their stem. Error(kMissingInput) if the
/// folder is not there or holds none; Error(kBadData) for a name without a year, or two of one year.
std::vector<std::string> list_year_files(const std::string& folder);

/// Pairs (t, t + 1) of consecutive times, counted over the files; none crosses the end of a file.
class YearPairs {
 public:
  struct Pair {
    int64_t file;
    int64_t time;  ///< of the input; the target is at time + 1
  };

  YearPairs() = default;
  /// `num_times` of each file; a file of n times has n - 1 pairs.
  explicit YearPairs(const std::vector<int64_t>& num_times);

  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  Pair pair(int64_t sample) const;

 private:
  std::vector<int64_t> ends_;  // number of the sample after the last one of each file
};

/// Names of `count` channels: those of `attribute` (separated by commas) if it is not empty; else those of the ERA5
/// data of 20 channels; else c00, c01, ... Error(kBadData), naming `file`, if the attribute has another number of them.
std::vector<std::string> channel_names(int64_t count, const std::string& attribute, const std::string& file);

}  // namespace vit_hybrid::data
