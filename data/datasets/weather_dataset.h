// WeatherDataset: pairs of states of the atmosphere, one lead apart, from a folder of HDF5 files, one a year;
// WeatherTimes: its states one by one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/datasets/coordinates.h"
#include "data/datasets/dataset.h"
#include "data/datasets/field_catalogue.h"
#include "data/datasets/field_roles.h"
#include "data/datasets/normalization.h"
#include "data/datasets/year_files.h"
#include "data/loading/tensor_pool.h"
#include "data/reading/posix_file.h"
#include "data/reading/row_source.h"

namespace vit_hybrid::data {

struct WeatherOptions {
  std::string folder = {};                          ///< holds the year files: 1990.h5, ...
  std::string global_means = {};                    ///< .npy file; empty: as `normalization` says
  std::string global_stds = {};                     ///< given together with global_means
  std::optional<Normalization> normalization = {};  ///< known otherwise; without it and files values stay as they are
  FieldQuery fields = {};                           ///< its channels are row_channels()
  FieldRoles roles = {};
  Grid grid = {};  ///< of data that do not know theirs
  Lead lead = {};  ///< from input to target
  IoMode io = IoMode::kAuto;
  MpiIoHints mpiio_hints = {};    ///< for collective reading
  std::string stage_folder = {};  ///< of each node, where what is read is copied first; empty: nothing is copied
  int64_t stage_samples = 0;      ///< only what the first ones need is copied; 0: all
};

/// Error(kBadData) unless the layout is that of fields (time, channel, height, width), floating point and not empty;
/// `where` names file and dataset.
void require_fields(const ArrayLayout& layout, const std::string& where);

/// The names of channels that the files give, separated by commas; empty where none does. Files that give none are
/// taken to have those of the others. Error(kBadData) where two differ.
std::string given_channels(const std::vector<RowFile>& files);

/// The grid that the files give. Files that give none are taken to have that of the others. Error(kBadData) where two
/// differ.
Grid given_grid(const std::vector<RowFile>& files);

/// What the options say, for data of so many channels, which are called `names` and have these `units` (with commas
/// between them; empty: not known). Collective over `group`; errors as Normalization::read()'s.
Normalization normalization_of(const comm::MpiGroup& group, const WeatherOptions& options, int64_t channels,
                               const std::string& names, const std::string& units);

/// Sample s is the pair (t, t + lead) number s over the files in the order of years, with the states before t that the
/// input has, too; none crosses a gap in the times, or the end of a file whose dates do not go on in the next. Both t
/// and t + lead are of the dates that were asked for, states before t as far as AskedDates::before goes. Inputs
/// and targets are normalized fields [channels, height, width], their channels those of SampleChannels.
class WeatherDataset : public Dataset {
 public:
  /// Opens the files. Collective over `group` (which outlives the data set), with the same options on all ranks; errors
  /// are agreed: Error(kMissingInput), Error(kBadData), Error(kUsage).
  WeatherDataset(const comm::MpiGroup& group, const WeatherOptions& options);
  // Batches point to its scaling.
  WeatherDataset(const WeatherDataset&) = delete;
  WeatherDataset& operator=(const WeatherDataset&) = delete;

  int64_t size() const override { return pairs_.size(); }
  std::vector<int64_t> input_shape() const override { return {channels_.inputs(), shape_[1], shape_[2]}; }
  std::vector<int64_t> target_shape() const override { return {channels_.outputs(), shape_[1], shape_[2]}; }
  std::vector<std::string> channel_names() const override { return channel_names_; }
  Batch read(std::span<const int64_t> samples, Parts parts, int64_t epoch) const override;
  bool background_reads() const override { return source_->background_reads(); }
  const StoredScaling* stored_scaling() const override { return has_float_files_ ? &input_scaling_ : nullptr; }
  FieldCuts cuts() const override { return cuts_; }

  /// How the bytes are read, for the log: "direct", "independent (1990.h5 has filter deflate)".
  const std::string& io_text() const { return source_->mode_text(); }
  const std::vector<RowFile>& files() const { return source_->files(); }
  const SampleChannels& channels() const { return channels_; }
  /// Of the channels of a row.
  const Normalization& normalization() const { return normalization_; }
  /// The names of the channels of a row that the files give, empty where none does (channel_names() then has others).
  const std::string& given_channels() const { return given_channels_; }
  const std::vector<std::string>& row_names() const { return row_names_; }  ///< of the channels of a row
  /// Their units as the first file tells them (list_of_units()).
  const std::string& given_units() const { return given_units_; }
  /// The points of the fields, as far as the files give them.
  const Grid& grid() const { return grid_; }
  const Lead& lead() const { return lead_; }
  int64_t num_gaps() const { return num_gaps_; }  ///< in the times of the files, as far as these name them
  /// Bytes that this rank has read from the files directly so far.
  int64_t bytes_read() const { return source_->bytes_read(); }

 private:
  // Channels of rows that are read together.
  struct Part {
    Range channels;
    Normalization normalization;
  };
  // A row of a part, counted over all files, and where its normalized values go.
  struct Wanted {
    int64_t row;
    float* to;
  };

  void check_layouts() const;
  void set_scaling();
  void read_part(const Part& part, std::span<const Wanted> wanted, const FieldShare& share, bool as_stored) const;
  std::vector<int64_t> rows_needed(int64_t num_samples) const;
  [[noreturn]] void fail_non_finite(const RowRead& row, const RowBox& box, int64_t element, float value) const;

  std::unique_ptr<RowSource> source_;
  Lead lead_;
  int64_t num_gaps_ = 0;
  TimePairs pairs_;
  std::vector<int64_t> shape_;  // of one row
  SampleChannels channels_;
  std::vector<std::string> row_names_;      // of its channels
  std::vector<std::string> channel_names_;  // of those that are predicted
  std::string given_channels_;
  std::string given_units_;
  Grid grid_;
  FieldCuts cuts_;
  Normalization normalization_;
  std::vector<Part> parts_;  // all different ones, in the order of reading: the same on all ranks
  DerivedInputs derived_;
  bool has_float_files_ = false;  // float32: other types are converted while they are normalized
  StoredScaling input_scaling_;
  StoredScaling target_scaling_;
  mutable TensorPool pool_;
};

// WeatherTimes: the states of a weather data set one by one.

/// The times of all files. Rows are counted over all files in their order; times are those of them that are of the
/// dates that were asked for. Behind and before a time there are those beyond the dates, too, as far as AskedDates
/// goes.
class WeatherTimes {
 public:
  /// Opens the files of options.folder. Reading is each rank's own; in mode kCollective it is kIndependent. Collective
  /// over `group` (which outlives the object), on the main thread, with the same options on all ranks; errors are
  /// agreed: Error(kMissingInput), Error(kBadData).
  WeatherTimes(const comm::MpiGroup& group, const WeatherOptions& options);

  /// Where a time lies.
  using Place = TimeRow;

  int64_t size() const { return num_rows(starts_); }
  /// time_runs(), and the times in each of them, which may be none.
  const std::vector<Range>& runs() const { return runs_; }
  const std::vector<Range>& starts() const { return starts_; }
  const std::vector<RowFile>& files() const { return source_->files(); }
  /// `index` is in [0, size()).
  Place place(int64_t index) const;
  /// The file and the row in it.
  RowSource::Place in_file(int64_t row) const { return source_->place(row); }
  const RowFile& file_of(int64_t row) const { return files()[static_cast<size_t>(in_file(row).file)]; }
  const SampleChannels& channels() const { return channels_; }
  std::vector<int64_t> input_shape() const { return {channels_.inputs(), shape_[1], shape_[2]}; }
  std::vector<int64_t> target_shape() const { return {channels_.outputs(), shape_[1], shape_[2]}; }
  const std::vector<std::string>& channel_names() const { return names_; }  ///< of what is predicted
  /// The times of rows whose channels lie in arrays of their own, as the file of the first one has them, and in its
  /// units those of files behind it. Nothing of a dataset of states, which has its own scales. On this rank alone.
  std::optional<StoredTimes> times_of_arrays(Range rows) const;
  /// Those of rows as the files name them, separated by commas; empty where none does.
  const std::string& given_channels() const { return given_channels_; }
  /// Likewise their units (list_of_units()).
  const std::string& given_units() const { return given_units_; }
  /// The points of the states, as far as the files give them.
  const Grid& grid() const { return grid_; }
  /// The unit of each predicted channel; all empty where the files name none.
  const std::vector<std::string>& units() const { return units_; }
  /// Of the channels of a row.
  const Normalization& normalization() const { return normalization_; }
  const Lead& lead() const { return lead_; }
  /// Whether the files say that none of the forcings of the data changes with time.
  bool forcings_are_constant() const { return forcings_are_constant_; }

  /// Whether all that follow make no MPI and no HDF5 call and may run on any thread.
  bool background_reads() const { return source_->background_reads(); }
  /// What is predicted as it came true at a row: float32 [C, H, W], normalised. Error(kBadData) names a value that is
  /// not finite.
  at::Tensor read(int64_t row) const;
  /// The same as it is stored, in the units of the data, float32.
  at::Tensor read_stored(int64_t row) const;
  /// The input at a place that has the states before it which the model takes: float32 [input_shape()], normalised.
  at::Tensor input(const Place& place) const;
  /// Of the input `rows` behind a place what no prediction gives: [forcings of the data, then computed ones, H, W].
  /// Rows behind the end of the run are its last interval apart, and have no forcings of the data but constant ones.
  at::Tensor forcings(const Place& place, int64_t rows) const;

 private:
  void check_layouts();
  at::Tensor read_raw(int64_t row) const;
  at::Tensor read_row(int64_t row) const;
  double seconds_of(const Place& place, int64_t row) const;

  std::unique_ptr<RowSource> source_;
  std::vector<Range> runs_;
  std::vector<Range> starts_;
  std::vector<int64_t> shape_;  // of a row
  SampleChannels channels_;
  std::vector<std::string> row_names_;
  std::vector<std::string> names_;
  std::string given_channels_;
  std::string given_units_;
  Grid grid_;
  Lead lead_;
  std::vector<std::string> units_;
  Normalization normalization_;
  DerivedInputs derived_;
  bool forcings_are_constant_ = false;
};

/// The unit that a variable of ERA5 is stored in, by the first letters of its channel's name ("z500": "m2/s2"); empty
/// where the name is none of theirs.
std::string era5_unit(const std::string& channel);

/// The units of the channels of fields: those of the attribute `units` (of a dataset if there is one for each channel,
/// of a variable that of all its levels), else empty. On this rank alone (main thread).
std::vector<std::string> told_units(const RowFile& file);
/// The same in one text with commas between them; empty where the file tells none.
std::string list_of_units(const RowFile& file);
/// `told` units, and where they are empty those of ERA5's channels of these `names`, era5_unit(). Pure.
std::vector<std::string> channel_units(std::vector<std::string> told, const std::vector<std::string>& names);

/// Of names with commas between them those of these channels; empty where none is given.
std::string part_of_names(const std::string& names, Range channels);

/// Values [C, ...] in the units of the data from normalised ones, float32.
at::Tensor denormalize_field(const at::Tensor& field, const Normalization& normalization);

}  // namespace vit_hybrid::data
