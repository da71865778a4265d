// The index of a climatology's rows by day and hour, and fields whose dims are the hour and the day of the year.
#include "data/datasets/day_climatology.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "data/datasets/static_fields.h"
#include "data/hdf5/hdf5_layout.h"
#include "data/reading/joined_rows.h"
#include "data/zarr/zarr_fields.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

constexpr const char* kClimatologyHint =
    "needed is a field for each day of a leap year at each hour of the data: data stats --climatology makes it";
constexpr int64_t kDaysOfLeapYear = 366;
constexpr int64_t kMostKeptBytes = int64_t{512} << 20;  // of what chunks hold beside the field that is read
constexpr const char* kHour = "hour";
constexpr const char* kDayOfYear = "dayofyear";

size_t dim_named(const FieldVariable& variable, const char* name) {
  const auto& names = variable.dim_names;
  return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

bool is_by_hour_and_day(const FieldVariable& variable) {
  const size_t rank = variable.shape.size();
  return dim_named(variable, kHour) < rank && dim_named(variable, kDayOfYear) < rank;
}

// A file or store, whose coordinates are asked for by dim.
struct OpenedFile {
  std::string path;
  std::optional<ZarrFields> store;

  explicit OpenedFile(const std::string& of) : path(of) {
    if (is_zarr_store(path)) {
      store.emplace(path);
    }
  }
  std::vector<FieldVariable> variables() const { return store ? store->variables() : hdf5_field_variables(path); }
  StoredTimes coordinate(const FieldVariable& variable, size_t dim) const {
    return store ? store->times_of(variable.name, dim) : hdf5_times(path, variable.name, dim);
  }
  ArrayLayout inspect(const FieldVariable& variable) const {
    return store ? store->inspect(variable, true) : inspect_hdf5_variable(path, variable, true);
  }
};

// As if it had one time in place of hours and days, so that it is found as other fields are; in `whole` its own dims:
// kTime counts the hours, kOther the days.
FieldVariable at_one_time(const FieldVariable& variable, const OpenedFile& file, FieldVariable& whole) {
  const size_t hour = dim_named(variable, kHour), day = dim_named(variable, kDayOfYear);
  FieldVariable one = variable;
  one.shape = {1};
  one.told = {DimKind::kTime};
  std::vector<size_t> others;
  for (size_t d = 0; d < variable.shape.size(); ++d) {
    if (d != hour && d != day) {
      others.push_back(d);
      one.shape.push_back(variable.shape[d]);
      one.told.push_back(variable.told[d]);
    }
  }
  one.dims = field_dims(one.shape, one.told);
  whole.dims.assign(variable.shape.size(), DimKind::kOther);
  whole.dims[hour] = DimKind::kTime;
  for (size_t i = 0; !one.dims.empty() && i < others.size(); ++i) {
    whole.dims[others[i]] = one.dims[i + 1];
    if (one.dims[i + 1] == DimKind::kLevel) {
      const StoredTimes levels = file.coordinate(variable, others[i]);
      one.levels = levels_in_hpa(levels.values, levels.units);
    }
  }
  const bool has_planes = std::any_of(one.dims.begin(), one.dims.end(), [](DimKind kind) {
    return kind == DimKind::kLevel || kind == DimKind::kChannel;
  });
  if (has_planes && one.levels.empty()) {
    one.dims.clear();
  }
  return one;
}

// Of FieldQuery::variables what the first file has: the rest is of the data.
std::string names_of_file(const std::string& pairs, const std::string& path) {
  std::vector<std::string> kept = names_in(pairs);
  if (kept.empty()) {
    return "";
  }
  const std::vector<FieldVariable> variables = OpenedFile(list_weather_files(path).front()).variables();
  std::erase_if(kept, [&](const std::string& pair) {
    const std::string theirs = pair.substr(pair.find('=') + 1);
    return std::none_of(variables.begin(), variables.end(), [&](const FieldVariable& v) { return v.name == theirs; });
  });
  return join(kept, ",");
}

WeatherOptions climatology_options(const std::string& path, const FieldQuery& query, const WeatherTimes& fields) {
  WeatherOptions options;
  options.folder = path;
  options.normalization = part_of(fields.normalization(), fields.channels().predicted());
  options.fields = query;
  options.lead = {.rows = 1};
  return options;
}

// For one rank to ask.
void require_climatology(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw Error(ErrorClass::kMissingInput, str("the climatology ", path, " is not there"), kClimatologyHint);
  }
  if (!std::filesystem::is_directory(path, ignored) && !has_hdf5_name(path)) {
    throw Error(ErrorClass::kBadData,
                str("the climatology ", path, " is no file *.nc, *.nc4, *.h5 or *.hdf5, and no Zarr store"),
                kClimatologyHint);
  }
}

}  // namespace

/// A climatology as WeatherBench 2 stores them: variables (hour, dayofyear, level, latitude, longitude) in an order of
/// their own, hours and days first.
class HourDayFields {
 public:
  /// Null where `path` is none. Collective over `group`; errors are agreed.
  static std::unique_ptr<HourDayFields> open(const comm::MpiGroup& group, const std::string& path,
                                             const FieldQuery& query, const Normalization& normalization) {
    auto opened = std::unique_ptr<HourDayFields>(new HourDayFields(path, normalization));
    std::string packed;
    comm::agreed_on_rank_0(group, [&] { packed = opened->inspect(query); });
    packed = group.broadcast(std::move(packed), 0);
    if (packed.empty()) {
      return nullptr;
    }
    opened->file_.layout = unpack_layouts(packed).front();
    opened->share(group);
    return opened;
  }

  const ArrayLayout& layout() const { return file_.layout; }
  std::vector<int64_t> shape() const { return {layout().shape.begin() + 1, layout().shape.end()}; }
  std::vector<std::string> units() const {
    return channel_units(told_units(file_), split_channels(layout().attribute));
  }
  bool background_reads() const {
    return std::none_of(layout().arrays.begin(), layout().arrays.end(),
                        [](const ArrayLayout& array) { return array.storage == ArrayLayout::Storage::kOpaque; });
  }
  const std::vector<double>& hours() const { return hours_; }
  const std::vector<double>& days() const { return days_; }

  /// [C, H, W], normalised, float32.
  at::Tensor read(int64_t hour, int64_t day) const {
    const MemoryScope scope(MemoryClass::kData);
    const at::Tensor fields = at::empty(shape(), layout().type);
    const RowRead row{0, hour * std::ssize(days_) + day, fields.data_ptr()};
    const RowBox box = RowBox::whole(layout());
    reader_->read({&row, 1}, {&box, 1}, {});
    const at::Tensor normalised = at::empty(fields.sizes(), at::kFloat);
    if (const int64_t bad = normalize_field(fields, normalization_, normalised); bad >= 0) {
      const int64_t points = fields.size(1) * fields.size(2);
      throw Error(ErrorClass::kBadData,
                  str(file_.path, ": '", shown(layout().array_of(bad / points).name), "' is not finite (",
                      fields.view(-1)[bad].item<double>(), ") at ", hours_[static_cast<size_t>(hour)], " hours, day ",
                      days_[static_cast<size_t>(day)], " of the year, row ", bad % points / fields.size(2), ", column ",
                      bad % fields.size(2)),
                  "values must be finite: repair the file or take another climatology");
    }
    return normalised;
  }

 private:
  HourDayFields(const std::string& path, Normalization normalization)
      : file_{path, {}}, normalization_(std::move(normalization)) {}

  // On one rank: the packed layout, or nothing where no variable has these dims.
  std::string inspect(const FieldQuery& query) {
    const std::vector<std::string> paths = list_weather_files(file_.path);
    if (paths.size() > 1) {
      return "";
    }
    file_.path = paths.front();
    const OpenedFile file(file_.path);
    std::vector<FieldVariable> all, whole;
    for (const FieldVariable& variable : file.variables()) {
      if (is_by_hour_and_day(variable)) {
        if (std::min(dim_named(variable, kHour), dim_named(variable, kDayOfYear)) != 0) {
          throw Error(ErrorClass::kBadData,
                      str("the climatology ", file_.path, ": '", shown(variable.name), "' has the dims ",
                          shown(join(variable.dim_names))),
                      "hour or dayofyear is the first of them, the others are in any order");
        }
        FieldVariable& own = whole.emplace_back(variable);
        all.push_back(at_one_time(variable, file, own));
      }
    }
    if (all.empty()) {
      return "";
    }
    if (query.channels.empty()) {
      throw Error(ErrorClass::kBadData,
                  str("the climatology ", file_.path,
                      " has a variable for each quantity, and the channels of the data ", "have no names"),
                  "name them with --channels, or take a climatology of data stats --climatology");
    }
    const std::vector<ChannelPlace> places = find_channels(query.channels, query, all, file_.path);
    const ArrayLayout joined = join_arrays(
        places, whole, [&](const FieldVariable& variable) { return file.inspect(variable); }, file_.path);
    for (const ArrayLayout& array : joined.arrays) {
      read_coordinates(file, whole, array);
    }
    return pack_layouts({joined});
  }

  void read_coordinates(const OpenedFile& file, const std::vector<FieldVariable>& variables, const ArrayLayout& array) {
    const auto variable = std::find_if(variables.begin(), variables.end(),
                                       [&](const FieldVariable& known) { return known.name == array.name; });
    for (const auto& [name, values, least, most] :
         {std::tuple<const char*, std::vector<double>&, double, double>(kHour, hours_, 0.0, 24.0),
          {kDayOfYear, days_, 1.0, 367.0}}) {
      const std::vector<double> found = file.coordinate(*variable, dim_named(*variable, name)).values;
      const bool fits =
          !found.empty() && std::all_of(found.begin(), found.end(), [least = least, most = most](double value) {
            return value >= least && value < most;
          });
      if (!fits || (!values.empty() && values != found)) {
        throw Error(ErrorClass::kBadData,
                    str(file_.path, ": '", shown(array.name), "' has ", found.empty() ? "no" : "other",
                        " coordinates of its dim ", name, fits ? " than the variables before it" : ""),
                    "hour is in [0, 24), dayofyear from 1 to 366, the same of all variables");
      }
      values = found;
    }
  }

  // What rank 0 has found.
  void share(const comm::MpiGroup& group) {
    file_.path = group.broadcast(std::move(file_.path), 0);
    const ArrayLayout& first = layout().arrays.front();
    for (size_t d = 0; d < first.dims.size(); ++d) {
      if (first.dims[d] == DimKind::kTime || first.dims[d] == DimKind::kOther) {
        std::vector<double>& values = first.dims[d] == DimKind::kTime ? hours_ : days_;
        values.resize(static_cast<size_t>(first.shape[d]));
        group.broadcast(values.data(), std::ssize(values) * static_cast<int64_t>(sizeof(double)), 0);
      }
    }
    std::set<std::string> compared;
    for (const ArrayLayout& array : layout().arrays) {
      compared.insert(array.storage == ArrayLayout::Storage::kChunkFiles ? "" : file_.path);
      for (const std::string& name : array.chunk_files.samples) {
        compared.insert(file_.path + "/" + name);
      }
    }
    compared.erase("");
    require_same_files(group, {compared.begin(), compared.end()});
    int64_t day_bytes = 0;
    for (const ChannelRun& run : layout().runs) {
      const at::ScalarType type = layout().arrays[static_cast<size_t>(run.array)].type;
      day_bytes += std::ssize(hours_) * run.count * layout().shape[2] * layout().shape[3] *
                   static_cast<int64_t>(c10::elementSize(type));
    }
    comm::agreed(group, [&] {
      reader_ = make_joined_row_reader({file_}, [&](const std::vector<RowFile>& files) {
        return std::make_unique<HourDayReader>(files.front().layout, array_reader(files.front()),
                                               kMostKeptBytes / std::max<int64_t>(day_bytes, 1));
      });
    });
  }

  RowFile file_;  // a joined layout, whose arrays have their own dims
  Normalization normalization_;
  std::vector<double> hours_, days_;
  std::unique_ptr<RowReader> reader_;
};

DayClimatology::Key DayClimatology::key_of(const DayTime& time) {
  return {time.day_of_year, std::llround(time.seconds)};
}

DayClimatology::DayClimatology(const comm::MpiGroup& group, const std::string& path, const FieldQuery& query,
                               const WeatherTimes& fields)
    : path_(path) {
  const Range predicted = fields.channels().predicted();
  FieldQuery of_path = query;
  comm::agreed_on_rank_0(group, [&] {
    require_climatology(path);
    of_path.variables = names_of_file(query.variables, path);
  });
  of_path.variables = group.broadcast(std::move(of_path.variables), 0);
  of_path.channels = part_of_names(fields.given_channels(), predicted);
  by_hour_ = HourDayFields::open(group, path, of_path, part_of(fields.normalization(), predicted));
  if (!by_hour_) {
    times_.emplace(group, climatology_options(path, of_path, fields));
  }
  comm::agreed(group, [&] {
    if (by_hour_) {
      require_fields(by_hour_->shape(), by_hour_->layout().grid, by_hour_->units(), fields);
    } else {
      require_fields(times_->target_shape(), times_->grid(), times_->units(), fields);
    }
  });
  if (!by_hour_) {
    add_rows(group);
  }
  comm::agreed(group, [&] {
    for (size_t hour = 0; by_hour_ && hour < by_hour_->hours().size(); ++hour) {
      for (size_t day = 0; day < by_hour_->days().size(); ++day) {
        add({.day_of_year = std::llround(by_hour_->days()[day]), .seconds = by_hour_->hours()[hour] * kSecondsOfHour},
            static_cast<int64_t>(hour), static_cast<int64_t>(day));
      }
    }
    require_all_days();
  });
}

void DayClimatology::require_all_days() const {
  std::map<int64_t, int64_t> days;  // at each second of the day
  for (const auto& [key, field] : rows_) {
    ++days[key.second];
  }
  for (const auto& [second, count] : days) {
    if (count != kDaysOfLeapYear) {
      throw Error(ErrorClass::kBadData,
                  str("the climatology ", path_, " has ", counted(count, "day"), " of the year at ",
                      static_cast<double>(second) / kSecondsOfHour, " hours, not all ", kDaysOfLeapYear),
                  kClimatologyHint);
    }
  }
}

DayClimatology::~DayClimatology() = default;

bool DayClimatology::background_reads() const {
  return by_hour_ ? by_hour_->background_reads() : times_->background_reads();
}

void DayClimatology::require_fields(const std::vector<int64_t>& shape, const Grid& grid,
                                    const std::vector<std::string>& units, const WeatherTimes& fields) {
  Grid as_data = grid;
  if (!same_points(grid.latitudes, fields.grid().latitudes)) {
    std::reverse(as_data.latitudes.begin(), as_data.latitudes.end());
    is_turned_ = true;
  }
  const std::vector<double>& east = fields.grid().longitudes;
  if (std::vector<double>& points = as_data.longitudes; !east.empty() && points.size() == east.size()) {
    const auto first = std::find_if(points.begin(), points.end(), [&](double point) {
      return same_points({std::remainder(point - east.front(), 360.0)}, {0.0});
    });
    first_column_ = first == points.end() ? 0 : first - points.begin();
    std::rotate(points.begin(), points.begin() + first_column_, points.end());
    for (size_t i = 0; i < points.size(); ++i) {
      points[i] += 360.0 * std::round((east[i] - points[i]) / 360.0);
    }
  }
  if (shape != fields.target_shape() || !same_grid(as_data, fields.grid())) {
    throw Error(ErrorClass::kBadData,
                str("the climatology ", path_, " has fields (", join(shape), ") of ", grid_text(grid), ", the data (",
                    join(fields.target_shape()), ") of ", grid_text(fields.grid())),
                "make it of these channels on this grid: data stats --climatology");
  }
  for (size_t c = 0; c < units.size(); ++c) {
    const std::string &unit = units[c], &expected = fields.units()[c];
    if (!unit.empty() && !expected.empty() && !is_same_unit(unit, expected)) {
      throw Error(ErrorClass::kBadData,
                  str("the climatology ", path_, " has ", shown(fields.channel_names()[c]), " in ", shown(unit),
                      ", the data ", fields.files().front().path, " in ", shown(expected)),
                  "convert the values of one of them, or make it of these data: data stats --climatology");
    }
  }
}

void DayClimatology::add_rows(const comm::MpiGroup& group) {
  const std::vector<RowFile>& files = times_->files();
  comm::agreed(group, [&] {
    for (const RowFile& file : files) {
      if (file.layout.times.kind != TimeAxis::Kind::kDates) {
        throw Error(ErrorClass::kBadData, str("the climatology ", file.path, " has no dates"), kClimatologyHint);
      }
    }
  });
  const auto seconds = seconds_of_rows(group, files);
  comm::agreed(group, [&] {
    for (int64_t row = 0; row < std::ssize(seconds); ++row) {
      add(day_time(seconds[static_cast<size_t>(row)], times_->file_of(row).layout.times), row, 0);
    }
  });
}

void DayClimatology::add(const DayTime& time, int64_t first, int64_t second) {
  if (!rows_.try_emplace(key_of(time), first, second).second) {
    throw Error(ErrorClass::kBadData,
                str(path_, " is no climatology: it has day ", time.day_of_year, " of the year at ",
                    time.seconds / kSecondsOfHour, " hours twice"),
                kClimatologyHint);
  }
}

void DayClimatology::require(const std::vector<DayTime>& times) const {
  const auto missing =
      std::find_if(times.begin(), times.end(), [&](const DayTime& time) { return !rows_.contains(key_of(time)); });
  if (missing != times.end()) {
    throw Error(ErrorClass::kBadData,
                str("the climatology ", path_, " has no row for day ", missing->day_of_year, " of the year at ",
                    missing->seconds / kSecondsOfHour, " hours"),
                kClimatologyHint);
  }
}

at::Tensor DayClimatology::read(const DayTime& time) const {
  const auto [first, second] = rows_.at(key_of(time));
  const at::Tensor field = by_hour_ ? by_hour_->read(first, second) : times_->read(first);
  const at::Tensor turned = is_turned_ ? field.flip({1}) : field;
  return first_column_ > 0 ? turned.roll({-first_column_}, {2}) : turned;
}

HourDayReader::HourDayReader(const ArrayLayout& array, std::unique_ptr<RowReader> reader, int64_t most_days)
    : type_(array.type),
      reader_(std::move(reader)),
      is_hour_first_(array.dims.front() == DimKind::kTime),
      outer_(blocks_along(array, is_hour_first_ ? DimKind::kTime : DimKind::kOther)),
      inner_(blocks_along(array, is_hour_first_ ? DimKind::kOther : DimKind::kTime)),
      kept_(1) {
  Blocks &hours = is_hour_first_ ? outer_ : inner_, &days = is_hour_first_ ? inner_ : outer_;
  if (most_days < 2) {
    hours.size = days.size = 1;
    return;
  }
  // Leads of one start may lie on both sides of a border.
  days.size = std::min(days.size, most_days / 2);
  const int64_t of_day = (hours.count + hours.size - 1) / hours.size;
  const int64_t of_all_days = (days.count + days.chunk - 1) / days.chunk * ((days.chunk + days.size - 1) / days.size);
  kept_ = LruCache<at::Tensor>(static_cast<size_t>(std::min(most_days / days.size, of_all_days) * of_day));
}

HourDayReader::Blocks HourDayReader::blocks_along(const ArrayLayout& array, DimKind kind) const {
  const size_t dim = dim_of(array.dims, kind);
  const int64_t chunk = array.chunk.empty() ? 1 : array.chunk[dim];
  return {dim, array.shape[dim], chunk, chunk};
}

Range HourDayReader::Blocks::around(int64_t index) const {
  const int64_t begin = index / chunk * chunk;
  const int64_t first = index - (index - begin) % size;
  return {first, std::min({first + size, begin + chunk, count})};
}

RowBox HourDayReader::in_block(RowBox box, const Range& inner) const {
  box.start[inner_.dim - 1] = inner.begin;
  box.size[inner_.dim - 1] = inner.size();
  return box;
}

at::Tensor HourDayReader::read_block(const Range& outer, const Range& inner, std::span<const RowBox> boxes) const {
  std::vector<RowBox> of_block;
  int64_t values = 0;
  for (const RowBox& box : boxes) {
    of_block.push_back(in_block(box, inner));
    of_block.back().at = std::exchange(values, values + of_block.back().num_values());
  }
  const at::Tensor block = at::empty({outer.size(), values}, type_);
  std::vector<RowRead> rows;
  for (int64_t row = outer.begin; row < outer.end; ++row) {
    rows.push_back({0, row, block[row - outer.begin].data_ptr()});
  }
  reader_->read(rows, of_block, {});
  return block;
}

void HourDayReader::read(std::span<const RowRead> rows, std::span<const RowBox> boxes, const Arrived& arrived) {
  const int64_t num_days = is_hour_first_ ? inner_.count : outer_.count;
  const auto item = static_cast<int64_t>(c10::elementSize(type_));
  for (size_t i = 0; i < rows.size(); ++i) {
    int64_t in_outer = rows[i].row / num_days, in_inner = rows[i].row % num_days;
    if (!is_hour_first_) {
      std::swap(in_outer, in_inner);
    }
    const Range outer = outer_.around(in_outer), inner = inner_.around(in_inner);
    const auto make = [&] { return std::make_shared<at::Tensor>(read_block(outer, inner, boxes)); };
    const bool is_alone = outer_.size == 1 && inner_.size == 1;  // it is not worth its memory
    const auto block = is_alone ? make() : kept_.get(outer.begin * inner_.count + inner.begin, make);
    const at::Tensor row = (*block)[in_outer - outer.begin];
    int64_t at = 0;
    for (const RowBox& box : boxes) {
      const RowBox there = in_block(box, inner);
      const at::Tensor values = row.narrow(0, at, there.num_values()).view(there.size);
      at::from_blob(static_cast<char*>(rows[i].to) + box.at * item, box.size, at::TensorOptions(type_))
          .copy_(values.narrow(static_cast<int64_t>(inner_.dim) - 1, in_inner - inner.begin, 1));
      at += there.num_values();
      if (arrived) {
        arrived(i, box.at * item, box.num_values() * item);
      }
    }
  }
}

}  // namespace vit_hybrid::data
