// Opening, checking, reading and normalizing of weather fields.
#include "data/datasets/weather_dataset.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "data/datasets/class_names.h"
#include "data/datasets/year_files.h"
#include "data/hdf5/hdf5_layout.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

std::vector<std::string> list_for_all(const comm::MpiGroup& group, const std::string& folder) {
  std::vector<std::string> paths;
  comm::agreed_on_rank_0(group, [&] { paths = list_weather_files(folder); });
  return group.broadcast(paths, 0);
}

// Runs that begin behind a gap: in a file, or between dates of one simulation that do not go on.
int64_t num_gaps_in(const RowSource& source, const std::vector<Range>& runs) {
  return std::count_if(runs.begin(), runs.end(), [&](const Range& run) {
    const RowSource::Place begin = source.place(run.begin);
    const auto file = source.files().begin() + begin.file;
    const TimeAxis& times = file->layout.times;
    if (&run == &runs.front()) {
      return false;
    }
    if (begin.row > 0) {
      return true;
    }
    if (times.kind != TimeAxis::Kind::kDates) {
      return false;
    }
    const TimeAxis& before = (file - 1)->layout.times;
    return before.calendar == times.calendar && before.simulation == times.simulation;
  });
}

// Nothing where none is told.
std::string shape_text(const std::vector<int64_t>& shape) {
  return str("(", join(shape), ")");
}

}  // namespace

WeatherDataset::WeatherDataset(const comm::MpiGroup& group, const WeatherOptions& options) {
  const MemoryScope scope(MemoryClass::kData);
  source_ = std::make_unique<RowSource>(group, list_for_all(group, options.folder), options.fields, options.io,
                                        options.mpiio_hints);
  comm::agreed(group, [&] {
    check_layouts();
    const RowFile& first = source_->files().front();
    shape_ = {first.layout.shape.begin() + 1, first.layout.shape.end()};
    channels_ = sample_channels(options.roles, shape_.front());
    given_channels_ = data::given_channels(source_->files());
    grid_ = given_grid(source_->files());
    row_names_ = data::channel_names(shape_.front(), given_channels_, first.path);
    channel_names_ = {row_names_.begin() + channels_.predicted().begin, row_names_.end()};
    lead_ = resolved_lead(options.lead, common_interval(source_->files()));
    const std::vector<Range> runs = time_runs(source_->files());
    num_gaps_ = num_gaps_in(*source_, runs);
    pairs_ = TimePairs(runs, lead_.rows, channels_.history, chosen_rows(source_->files()));
    cuts_ = field_cuts(source_->files(), channels_);
    if (size() < 1) {
      const int64_t needed = lead_.rows * channels_.history + 1;
      const bool is_next = needed == 2;
      const AskedDates& dates = options.fields.dates;
      throw Error(ErrorClass::kBadData,
                  str(options.folder, " holds no pair of ",
                      is_next ? "consecutive times" : str("times that are ", lead_.rows, " rows apart"),
                      channels_.history == 1 ? "" : str(", with ", channels_.history, " states in the input"),
                      dates.span.empty() ? "" : str(", in the dates of ", dates.text())),
                  !dates.span.empty()
                      ? str("choose dates of which the data have at least ", needed, " times without a gap")
                  : is_next ? "at least one file must have two times"
                            : str("at least one file must have ", needed, " times without a gap"));
    }
  });
  derived_ = DerivedInputs(group, options.roles, options.fields.variables, source_->files(),
                           joined_grid(grid_, options.grid), {shape_[1], shape_[2]});
  if (!options.stage_folder.empty()) {
    source_->stage(options.stage_folder, rows_needed(options.stage_samples));
  }
  comm::agreed_on_rank_0(group, [&] { given_units_ = list_of_units(source_->files().front()); });
  given_units_ = group.broadcast(std::move(given_units_), 0);
  normalization_ = normalization_of(group, options, shape_.front(), given_channels_, given_units_);
  has_float_files_ = source_->files().front().layout.type == at::kFloat;
  set_scaling();
}

void WeatherDataset::set_scaling() {
  std::vector<Range> read = {channels_.taken(), channels_.predicted()};
  if (channels_.history > 1) {
    read.push_back(channels_.state());
  }
  for (const Range& channels : read) {
    const auto is_same = [&](const Part& part) { return part.channels == channels; };
    if (std::none_of(parts_.begin(), parts_.end(), is_same)) {
      parts_.push_back({channels, part_of(normalization_, channels)});
    }
  }
  const auto add = [&](StoredScaling& scaling, Range channels) {
    const Normalization part = part_of(normalization_, channels);
    scaling.mean.insert(scaling.mean.end(), part.mean.begin(), part.mean.end());
    scaling.std.insert(scaling.std.end(), part.std.begin(), part.std.end());
  };
  add(input_scaling_, channels_.taken());
  for (int64_t age = 1; age < channels_.history; ++age) {
    add(input_scaling_, channels_.state());
  }
  // What is made is as the model takes it.
  input_scaling_.mean.resize(static_cast<size_t>(channels_.inputs()), 0.0F);
  input_scaling_.std.resize(static_cast<size_t>(channels_.inputs()), 1.0F);
  add(target_scaling_, channels_.predicted());
}

void require_fields(const ArrayLayout& layout, const std::string& where) {
  const std::string needed = "needed is (time, channel, height, width)";
  if (layout.shape.size() != 4) {
    throw Error(ErrorClass::kBadData, str(where, " has ", layout.shape.size(), " dims ", shape_text(layout.shape)),
                needed);
  }
  if (!c10::isFloatingType(layout.type)) {
    throw Error(ErrorClass::kBadData, str(where, " holds integers"), "needed are floating-point numbers");
  }
  if (layout.row_bytes() == 0) {
    throw Error(ErrorClass::kBadData, str(where, " has the empty shape ", shape_text(layout.shape)), needed);
  }
}

void WeatherDataset::check_layouts() const {
  const RowFile& first = source_->files().front();
  for (const RowFile& file : source_->files()) {
    const ArrayLayout& layout = file.layout;
    const std::string where = str(file.path, ": dataset '", layout.name, "'");
    require_fields(layout, where);
    if (layout.type != first.layout.type ||
        !std::equal(layout.shape.begin() + 1, layout.shape.end(), first.layout.shape.begin() + 1)) {
      throw Error(ErrorClass::kBadData,
                  str(where, " is ", c10::toString(layout.type), " ", shape_text(layout.shape), ", but that of ",
                      first.path, " is ", c10::toString(first.layout.type), " ", shape_text(first.layout.shape)),
                  "all files have the same type, channels, height and width");
    }
  }
}

std::string given_channels(const std::vector<RowFile>& files) {
  const RowFile* named = nullptr;
  for (const RowFile& file : files) {
    if (file.layout.attribute.empty()) {
      continue;
    }
    named = named == nullptr ? &file : named;
    if (file.layout.attribute != named->layout.attribute) {
      throw Error(ErrorClass::kBadData,
                  str(file.path, " names its channels ", file.layout.attribute, ", but ", named->path, " names them ",
                      named->layout.attribute),
                  "all files have the same channels in the same order");
    }
  }
  return named == nullptr ? "" : named->layout.attribute;
}

Grid given_grid(const std::vector<RowFile>& files) {
  const RowFile* named = nullptr;
  Grid grid;
  for (const RowFile& file : files) {
    if (file.layout.grid == Grid()) {
      continue;
    }
    named = named == nullptr ? &file : named;
    if (!same_grid(file.layout.grid, grid)) {
      throw Error(ErrorClass::kBadData,
                  str(file.path, " has ", grid_text(file.layout.grid), ", but ", named->path, " has ", grid_text(grid)),
                  "all files have the same points in the same order");
    }
    grid = joined_grid(grid, file.layout.grid);
  }
  return grid;
}

Normalization normalization_of(const comm::MpiGroup& group, const WeatherOptions& options, int64_t channels,
                               const std::string& names, const std::string& units) {
  if (!options.global_means.empty()) {
    return Normalization::read(group, options.global_means, options.global_stds, channels, names, units);
  }
  if (!options.normalization) {
    return Normalization::identity(channels);
  }
  if (static_cast<int64_t>(options.normalization->mean.size()) != channels) {
    throw Error(ErrorClass::kBadData, str("the statistics are those of ", options.normalization->mean.size(),
                                          " channels, the data in ", options.folder, " have ", channels));
  }
  return *options.normalization;
}

// Of each file, by the first samples (0: all).
std::vector<int64_t> WeatherDataset::rows_needed(int64_t num_samples) const {
  const int64_t last = num_samples > 0 ? std::min(num_samples, size()) - 1 : size() - 1;
  int64_t left = pairs_.input_row(last) + lead_.rows + 1;  // rows from the file on
  std::vector<int64_t> rows;
  for (const RowFile& file : source_->files()) {
    rows.push_back(std::clamp<int64_t>(left, 0, file.layout.usable_rows().end));
    left -= file.layout.num_rows();
  }
  return rows;
}

Batch WeatherDataset::read(std::span<const int64_t> samples, Parts parts, int64_t) const {
  const bool as_stored = parts.form == ValueForm::kStored;
  VH_ASSERT(!as_stored || has_float_files_, "only float32 crosses to a device as it is stored");
  const FieldShare share = parts.share.value_or(FieldShare());
  const Range band = common_part(share.rows, {0, shape_[1]});
  const auto num_of = [&](Range channels) { return common_part(channels, share.channels).size(); };
  const int64_t plane = band.size() * shape_[2];
  std::vector<std::vector<Wanted>> wanted(parts_.size());
  const auto take = [&](int64_t channels) {
    return pool_.take({std::ssize(samples), channels, band.size(), shape_[2]}, at::kFloat, parts.memory);
  };
  const auto place_of = [&](const at::Tensor& part, size_t sample, int64_t channel) {
    return part.data_ptr<float>() + (static_cast<int64_t>(sample) * part.size(1) + channel) * plane;
  };
  // Channels of the rows `time_offset` behind the inputs, into the channels of `to` from `first` on.
  const auto want = [&](Range channels, int64_t time_offset, const at::Tensor& to, int64_t first) {
    const auto part = std::find_if(parts_.begin(), parts_.end(), [&](const Part& p) { return p.channels == channels; });
    for (size_t i = 0; i < samples.size(); ++i) {
      wanted[static_cast<size_t>(part - parts_.begin())].push_back(
          {pairs_.input_row(samples[i]) + time_offset, place_of(to, i, first)});
    }
  };
  Batch batch;
  batch.samples.assign(samples.begin(), samples.end());
  batch.scaling = as_stored ? &input_scaling_ : nullptr;
  batch.target_scaling = as_stored ? &target_scaling_ : nullptr;
  if (parts.input) {
    const int64_t taken = num_of(channels_.taken()), state = num_of(channels_.state());
    const int64_t stored = taken + state * (channels_.history - 1);
    const int64_t derived = share.channels.contains(channels_.row()) ? channels_.derived() : 0;
    batch.inputs = take(stored + derived);
    want(channels_.taken(), 0, batch.inputs, 0);
    for (int64_t age = 1; age < channels_.history; ++age) {
      want(channels_.state(), -age * lead_.rows, batch.inputs, taken + state * (age - 1));
    }
    for (size_t i = 0; derived > 0 && i < samples.size(); ++i) {
      derived_.write(derived_.seconds_of(pairs_.input_row(samples[i])), band, place_of(batch.inputs, i, stored));
    }
  }
  if (parts.state && parts.input && channels_.diagnostic == 0) {
    batch.states_in_inputs = channels_.state();
  } else if (parts.state) {
    batch.states = take(num_of(channels_.predicted()));
    want(channels_.predicted(), 0, batch.states, 0);
  }
  if (parts.target) {
    batch.targets = take(num_of(channels_.predicted()));
    want(channels_.predicted(), lead_.rows, batch.targets, 0);
  }
  for (size_t part = 0; part < parts_.size(); ++part) {
    if (!wanted[part].empty() || source_->mode() == IoMode::kCollective) {
      read_part(parts_[part], wanted[part], {band, share.channels}, as_stored);
    }
  }
  return batch;
}

void WeatherDataset::read_part(const Part& part, std::span<const Wanted> wanted, const FieldShare& share,
                               bool as_stored) const {
  const Range channels = common_part(part.channels, share.channels);
  const Normalization normalization =
      part_of(part.normalization, {channels.begin - part.channels.begin, channels.end - part.channels.begin});
  const RowBox box{{channels.begin, share.rows.begin, 0}, {channels.size(), share.rows.size(), shape_[2]}};
  const at::ScalarType type = source_->files().front().layout.type;
  const int64_t item = static_cast<int64_t>(c10::elementSize(type));
  const int64_t count = box.num_values(), channel_values = share.rows.size() * shape_[2];
  at::Tensor raw;  // of values that need another place before
  if (type != at::kFloat) {
    raw = pool_.take({std::ssize(wanted), box.size[0], box.size[1], box.size[2]}, type);
  }
  std::vector<RowRead> rows;
  for (const Wanted& row : wanted) {
    char* const aside = raw.defined() ? static_cast<char*>(raw.data_ptr()) + std::ssize(rows) * count * item : nullptr;
    rows.push_back(source_->read_of(row.row, aside != nullptr ? static_cast<void*>(aside) : row.to));
  }
  const auto normalize = [&](size_t read, int64_t first_byte, int64_t num_bytes) {
    const Range run{first_byte / item, (first_byte + num_bytes) / item};
    float* const to = wanted[read].to;
    const int64_t bad = as_stored ? first_not_finite(to, run, channel_values, normalization)
                                  : normalize_run({rows[read].to, type}, run, channel_values, normalization, to);
    if (bad >= 0) {
      fail_non_finite(rows[read], box, bad, to[bad]);
    }
  };
  for (const RowSource::Repeat& repeat : source_->read_once(rows, box, normalize)) {
    std::copy_n(wanted[repeat.of].to, count, wanted[repeat.read].to);
  }
}

void WeatherDataset::fail_non_finite(const RowRead& row, const RowBox& box, int64_t element, float value) const {
  const int64_t width = box.size[2];
  const int64_t channel = box.start[0] + element / (box.size[1] * width);
  const RowFile& file = source_->files()[static_cast<size_t>(row.file)];
  throw Error(ErrorClass::kBadData,
              str(file.where(channel), " is not finite (", value, ") at time ", row.row, ", channel ", channel, " (",
                  row_names_[static_cast<size_t>(channel)], "), row ", box.start[1] + element / width % box.size[1],
                  ", column ", element % width),
              "values must be finite: repair the file or leave it out");
}

std::vector<std::string> told_units(const RowFile& file) {
  std::vector<std::string> units;
  if (file.layout.arrays.empty()) {
    units = split_names(outline_dataset(file.path, file.layout.name, "units").attribute);
  }
  for (const ChannelRun& run : file.layout.runs) {
    const std::string& of_array = file.layout.arrays[static_cast<size_t>(run.array)].attribute;
    const std::vector<std::string> by_channel = split_names(of_array);
    for (int64_t plane = run.plane; plane < run.plane + run.count; ++plane) {
      const bool is_list = std::ssize(by_channel) > 1;  // of a dataset of channels
      const bool has_it = is_list && plane < std::ssize(by_channel);
      units.push_back(has_it ? by_channel[static_cast<size_t>(plane)] : is_list ? "" : of_array);
    }
  }
  const auto channels = static_cast<size_t>(file.layout.shape[1]);
  units.resize(units.size() == channels ? channels : 0);
  units.resize(channels);
  return units;
}

std::string list_of_units(const RowFile& file) {
  const std::vector<std::string> units = told_units(file);
  const bool none = std::all_of(units.begin(), units.end(), [](const std::string& unit) { return unit.empty(); });
  return none ? "" : join(units, ",");
}

std::vector<std::string> channel_units(std::vector<std::string> told, const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    told[i] = told[i].empty() ? era5_unit(names[i]) : told[i];
  }
  return told;
}

WeatherTimes::WeatherTimes(const comm::MpiGroup& group, const WeatherOptions& options) {
  const MemoryScope scope(MemoryClass::kData);
  const IoMode io = options.io == IoMode::kCollective ? IoMode::kIndependent : options.io;
  source_ = std::make_unique<RowSource>(group, list_for_all(group, options.folder), options.fields, io);
  comm::agreed(group, [&] {
    check_layouts();
    const RowFile& first = files().front();
    channels_ = sample_channels(options.roles, shape_.front());
    given_channels_ = data::given_channels(files());
    row_names_ = data::channel_names(shape_.front(), given_channels_, first.path);
    const std::vector<std::string> units = channel_units(told_units(first), row_names_);
    given_units_ = list_of_units(first);
    const Range predicted = channels_.predicted();
    names_ = {row_names_.begin() + predicted.begin, row_names_.end()};
    forcings_are_constant_ = std::all_of(files().begin(), files().end(), [&](const RowFile& file) {
      int64_t channel = 0;
      while (channel < channels_.forcings && file.layout.is_constant(channel)) {
        ++channel;
      }
      return channel == channels_.forcings;
    });
    units_ = {units.begin() + predicted.begin, units.end()};
    grid_ = given_grid(files());
    lead_ = resolved_lead(options.lead, common_interval(files()));
    runs_ = time_runs(files());
    const Range chosen = chosen_rows(files());
    std::transform(runs_.begin(), runs_.end(), std::back_inserter(starts_),
                   [&](const Range& run) { return common_part(run, chosen); });
    if (size() == 0) {
      throw Error(ErrorClass::kBadData, str(options.folder, " has no time that can be used"),
                  "files of states have rows, and not all of the dates that are asked for are missing");
    }
  });
  normalization_ = normalization_of(group, options, shape_.front(), given_channels_, given_units_);
  derived_ = DerivedInputs(group, options.roles, options.fields.variables, files(), joined_grid(grid_, options.grid),
                           {shape_[1], shape_[2]});
}

void WeatherTimes::check_layouts() {
  for (const RowFile& file : source_->files()) {
    const std::vector<int64_t>& shape = file.layout.shape;
    if (shape.size() != 4 || !c10::isFloatingType(file.layout.type) || file.layout.row_bytes() == 0) {
      throw Error(ErrorClass::kBadData,
                  str(file.path, ": dataset '", file.layout.name, "' is ", c10::toString(file.layout.type), " (",
                      join(shape), ")"),
                  "needed are floating-point fields (time, channel, height, width)");
    }
    if (shape_.empty()) {
      shape_.assign(shape.begin() + 1, shape.end());
    }
    if (!std::equal(shape.begin() + 1, shape.end(), shape_.begin())) {
      throw Error(ErrorClass::kBadData,
                  str(file.path, ": states of shape (", join(std::vector<int64_t>(shape.begin() + 1, shape.end())),
                      "), but those of ", files().front().path, " have (", join(shape_), ")"),
                  "all files have the same channels, height and width");
    }
  }
}

std::optional<StoredTimes> WeatherTimes::times_of_arrays(Range rows) const {
  std::optional<StoredTimes> all;
  for (int64_t row = rows.begin; row < rows.end && !file_of(row).layout.arrays.empty();) {
    const RowFile& file = file_of(row);
    StoredTimes times = stored_times(file.path, file.layout.arrays.front().name);
    const RowSource::Place place = in_file(row);
    const int64_t end = std::min(place.row + rows.end - row, file.layout.num_rows());
    if (all) {  // its rows go on with those before, so that both have dates
      times.values = times_of_seconds(seconds_of_times(times, file.layout.times), *all);
    }
    if (!times.values.empty()) {
      times.values = {times.values.begin() + place.row, times.values.begin() + end};
    }
    if (all) {
      all->values.insert(all->values.end(), times.values.begin(), times.values.end());
    } else {
      all = std::move(times);
    }
    row += end - place.row;
  }
  return all;
}

WeatherTimes::Place WeatherTimes::place(int64_t index) const {
  VH_ASSERT(index >= 0 && index < size(), str("time ", index, " of ", size()));
  TimeRow place = nth_row(starts_, index);
  place.run = *std::find_if(runs_.begin(), runs_.end(), [&](const Range& run) { return run.contains(place.row); });
  return place;
}

at::Tensor WeatherTimes::read_raw(int64_t row) const {
  const at::Tensor raw = at::empty(shape_, file_of(row).layout.type);
  source_->read({source_->read_of(row, raw.data_ptr())});
  return raw;
}

at::Tensor WeatherTimes::read_stored(int64_t row) const {
  const MemoryScope scope(MemoryClass::kData);
  const Range predicted = channels_.predicted();
  return read_raw(row).narrow(0, predicted.begin, predicted.size()).to(at::kFloat);
}

at::Tensor WeatherTimes::read(int64_t row) const {
  const Range predicted = channels_.predicted();
  return read_row(row).narrow(0, predicted.begin, predicted.size()).contiguous();
}

at::Tensor WeatherTimes::read_row(int64_t row) const {
  const MemoryScope scope(MemoryClass::kData);
  const at::Tensor raw = read_raw(row);
  const at::Tensor state = at::empty(shape_, at::kFloat);
  const int64_t bad = normalize_field(raw, normalization_, state);
  if (bad >= 0) {
    const int64_t plane = shape_[1] * shape_[2];
    throw Error(
        ErrorClass::kBadData,
        str(file_of(row).where(bad / plane), " is not finite (", state.const_data_ptr<float>()[bad], ") at time ",
            in_file(row).row, ", channel ", bad / plane, " (", row_names_[static_cast<size_t>(bad / plane)], "), row ",
            bad % plane / shape_[2], ", column ", bad % shape_[2]),
        "values must be finite: repair the file or choose another start");
  }
  return state;
}

at::Tensor WeatherTimes::input(const Place& place) const {
  const MemoryScope scope(MemoryClass::kData);
  const at::Tensor input = at::empty(input_shape(), at::kFloat);
  const auto part = [&](Range channels) { return input.narrow(0, channels.begin, channels.size()); };
  const auto of_row = [&](int64_t row, Range channels) {
    return read_row(row).narrow(0, channels.begin, channels.size());
  };
  part(channels_.taken()).copy_(of_row(place.row, channels_.taken()));
  for (int64_t age = 1; age < channels_.history; ++age) {
    part(channels_.past_state(age)).copy_(of_row(place.row - age * lead_.rows, channels_.state()));
  }
  if (channels_.derived() > 0) {
    derived_.write(seconds_of(place, place.row), {0, shape_[1]}, input[channels_.states().end].data_ptr<float>());
  }
  return input;
}

at::Tensor WeatherTimes::forcings(const Place& place, int64_t rows) const {
  const MemoryScope scope(MemoryClass::kData);
  const at::Tensor out = at::empty({channels_.forcings + channels_.computed, shape_[1], shape_[2]}, at::kFloat);
  if (channels_.forcings > 0) {
    VH_ASSERT(rows <= place.after() || forcings_are_constant_, "forcings of the data end with them");
    const int64_t row = place.row + std::min(rows, place.after());
    out.narrow(0, 0, channels_.forcings).copy_(read_row(row).narrow(0, 0, channels_.forcings));
  }
  if (channels_.computed > 0) {
    derived_.compute(seconds_of(place, place.row + rows), {0, shape_[1]}, out[channels_.forcings].data_ptr<float>());
  }
  return out;
}

// Behind the end of the run with its last interval.
double WeatherTimes::seconds_of(const Place& place, int64_t row) const {
  const int64_t last = std::min(row, place.run.end - 1);
  const double interval = lead_.hours * kSecondsOfHour / static_cast<double>(lead_.rows);
  return derived_.seconds_of(last) + static_cast<double>(row - last) * interval;
}

std::string era5_unit(const std::string& channel) {
  size_t letters = 0;
  while (letters < channel.size() && std::isalpha(static_cast<unsigned char>(channel[letters])) != 0) {
    ++letters;
  }
  const std::string variable = channel.substr(0, letters);
  const bool has_level = letters < channel.size();
  if (has_level && (variable == "u" || variable == "v")) return "m/s";
  if (has_level && variable == "t") return "K";
  if (has_level && variable == "z") return "m2/s2";
  if (has_level && variable == "r") return "%";
  if (variable == "sp" || variable == "msl") return "Pa";
  return variable == "tcwv" ? "kg/m2" : "";
}

std::string part_of_names(const std::string& names, Range channels) {
  const std::vector<std::string> all = names_in(names);
  return all.empty() ? ""
                     : join(std::vector<std::string>(all.begin() + channels.begin, all.begin() + channels.end), ",");
}

at::Tensor denormalize_field(const at::Tensor& field, const Normalization& normalization) {
  at::Tensor out = field.to(at::kCPU, at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  for (int64_t c = 0; c < out.size(0); ++c) {
    out[c].mul_(normalization.std[static_cast<size_t>(c)]).add_(normalization.mean[static_cast<size_t>(c)]);
  }
  return out.to(at::kFloat);
}

}  // namespace vit_hybrid::data
