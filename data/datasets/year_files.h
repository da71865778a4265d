// The files of a weather data set: which there are, their order, and how their times make pairs.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "data/reading/row_reader.h"
#include "src/base/partition.h"

namespace vit_hybrid::comm {
class MpiGroup;
}

namespace vit_hybrid::data {

/// Whether a file is named as HDF5 and netCDF-4 files are: *.h5, *.hdf5, *.nc, *.nc4, in any case of letters.
bool has_hdf5_name(const std::string& path);

/// The files of a folder that are named so and the Zarr stores in it, but for hidden ones, in the order of names; a
/// folder that is a Zarr store, or a file that is named so, is the only one. Error(kMissingInput) if the folder is not
/// there or holds none, Error(kBadData) where there are GRIB files instead.
std::vector<std::string> list_weather_files(const std::string& folder);

/// Puts the files of a weather data set in the order of their times: that of their time axes where all have one (of
/// dates, or numbers that do not overlap), else that of the years, the last four characters of their names' stems and
/// no part of a longer number, else that of numbers of equal length at the end of names that are equal before them.
/// Returns what a user should be told of it, or nothing. Error(kBadData) where neither tells an order, where two files
/// are of one year or number, and where dates overlap.
std::string order_by_time(std::vector<RowFile>& files);

/// The usable rows that follow each other at one interval, without a gap or a missing row, counted over all files in
/// their order. A run goes on in the next file where its dates do, unless these are of another simulation
/// (kSimulation); without dates, no run goes beyond its file.
std::vector<Range> time_runs(const std::vector<RowFile>& files);

/// The rows of the dates that were asked for, from the first to behind the last one, counted likewise.
Range chosen_rows(const std::vector<RowFile>& files);

/// A row, counted over all files, and the run that it is in.
struct TimeRow {
  int64_t row = 0;
  Range run;
  int64_t after() const { return run.end - 1 - row; }  ///< rows behind it, without a gap
};

/// Those of all runs.
int64_t num_rows(const std::vector<Range>& runs);
/// Number `index` of them, in [0, num_rows()).
TimeRow nth_row(const std::vector<Range>& runs, int64_t index);

/// The times of all rows in seconds since the begin of 1970, counted likewise; all files have dates. Collective over
/// `group`; errors are agreed.
std::vector<double> seconds_of_rows(const comm::MpiGroup& group, const std::vector<RowFile>& files);

/// Seconds from a row to the next one in all files (from most files to the next one where each has a single row); 0
/// where they do not all have dates. Error(kBadData) where two differ.
double common_interval(const std::vector<RowFile>& files);

/// Pairs (t, t + lead) of `chosen` rows with those before t that a history of states needs, each one lead before the
/// next, chosen or not; counted over the runs, and none crosses the end of one.
class TimePairs {
 public:
  TimePairs() = default;
  /// A run of n chosen rows has n - lead * history pairs.
  TimePairs(const std::vector<Range>& runs, int64_t lead, int64_t history = 1,
            Range chosen = {0, std::numeric_limits<int64_t>::max()});

  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  int64_t lead() const { return lead_; }
  /// The row of the input; the target is at that + lead().
  int64_t input_row(int64_t sample) const;

 private:
  int64_t lead_ = 1;
  std::vector<int64_t> firsts_;  // row of the first input of each run
  std::vector<int64_t> ends_;    // number of the sample after the last one of each run
};

/// The names in a list with commas between them, without the blanks around each; of an empty text one empty name.
std::vector<std::string> split_channels(const std::string& text);

/// The same, none of an empty text.
std::vector<std::string> names_in(const std::string& list);

/// Names of `count` channels: those of `attribute` (separated by commas) if it is not empty; else those of the ERA5
/// data of 20 channels; else c00, c01, ... Error(kBadData), naming `file`, if the attribute has another number of them.
std::vector<std::string> channel_names(int64_t count, const std::string& attribute, const std::string& file);

}  // namespace vit_hybrid::data
