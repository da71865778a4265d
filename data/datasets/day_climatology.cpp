// The index of a climatology's rows by day and hour, and fields whose dims are the hour and the day of the year.
#include "data/datasets/day_climatology.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iterator>
#include <limits>
#include <set>
#include <system_error>
#include <tuple>

#include "data/datasets/static_fields.h"
#include "data/hdf5/hdf5_layout.h"
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
  const std::vector<double>& hours() const { return hours_; }
  const std::vector<double>& days() const { return days_; }

  /// [C, H, W], normalised, float32.
  at::Tensor read(int64_t hour, int64_t day) const {
    const MemoryScope scope(MemoryClass::kData);
    std::vector<at::Tensor> planes(layout().runs.size());
    for (size_t array = 0; array < readers_.size(); ++array) {
      read_array(array, hour, day, planes);
    }
    at::Tensor fields = at::cat(planes);
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
    for (const auto& [name, values, most] :
         {std::tuple<const char*, std::vector<double>&, double>(kHour, hours_, 24.0), {kDayOfYear, days_, 367.0}}) {
      const std::vector<double> found = file.coordinate(*variable, dim_named(*variable, name)).values;
      const bool fits = !found.empty() && std::all_of(found.begin(), found.end(), [most = most](double value) {
        return value >= 0.0 && value < most;
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
    comm::agreed(group, [&] {
      for (const ArrayLayout& array : layout().arrays) {
        readers_.push_back(array_reader({file_.path, array}));
      }
    });
  }

  // All that the field has of an array, into the `planes` of its runs.
  void read_array(size_t number, int64_t hour, int64_t day, std::vector<at::Tensor>& planes) const {
    const ArrayLayout& array = layout().arrays[number];
    std::vector<RowBox> boxes;
    std::vector<size_t> runs;
    int64_t values = 0;
    for (size_t run = 0; run < planes.size(); ++run) {
      if (layout().runs[run].array == static_cast<int64_t>(number)) {
        runs.push_back(run);
        boxes.push_back(box_of(array, layout().runs[run], hour, day));
        boxes.back().at = values;
        values += boxes.back().num_values();
      }
    }
    const at::Tensor stored = at::empty({values}, array.type);
    const RowRead row{0, array.dims.front() == DimKind::kTime ? hour : day, stored.data_ptr()};
    readers_[number]->read({&row, 1}, boxes, {});
    for (size_t i = 0; i < runs.size(); ++i) {
      planes[runs[i]] = unpacked(array, stored.narrow(0, boxes[i].at, boxes[i].num_values()).view(boxes[i].size));
    }
  }

  static RowBox box_of(const ArrayLayout& array, const ChannelRun& run, int64_t hour, int64_t day) {
    RowBox box;
    for (size_t d = 1; d < array.dims.size(); ++d) {
      const DimKind kind = array.dims[d];
      const bool is_whole = kind == DimKind::kLatitude || kind == DimKind::kLongitude;
      const bool is_level = kind == DimKind::kLevel;
      box.start.push_back(is_level ? run.plane : kind == DimKind::kTime ? hour : kind == DimKind::kOther ? day : 0);
      box.size.push_back(is_whole ? array.shape[d] : is_level ? run.count : 1);
    }
    return box;
  }

  // [planes, H, W] in the type of the field.
  at::Tensor unpacked(const ArrayLayout& array, const at::Tensor& box) const {
    std::vector<int64_t> order;
    const auto add = [&](const std::function<bool(DimKind)>& is_wanted) {
      for (size_t d = 1; d < array.dims.size(); ++d) {
        if (is_wanted(array.dims[d])) {
          order.push_back(static_cast<int64_t>(d) - 1);
        }
      }
    };
    add([](DimKind kind) { return kind != DimKind::kLatitude && kind != DimKind::kLongitude; });
    add([](DimKind kind) { return kind == DimKind::kLatitude; });
    add([](DimKind kind) { return kind == DimKind::kLongitude; });
    const Packing& packing = array.packing;
    at::Tensor values = box.to(at::kDouble).mul(packing.scale).add(packing.offset);
    if (packing.has_fill) {
      values.masked_fill_(box.to(at::kDouble).eq(packing.fill), std::numeric_limits<double>::quiet_NaN());
    }
    return values.permute(order).reshape({-1, shape()[1], shape()[2]}).to(layout().type);
  }

  RowFile file_;  // a joined layout, whose arrays have their own dims
  Normalization normalization_;
  std::vector<double> hours_, days_;
  std::vector<std::unique_ptr<RowReader>> readers_;  // of the arrays
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

void DayClimatology::require_fields(const std::vector<int64_t>& shape, const Grid& grid,
                                    const std::vector<std::string>& units, const WeatherTimes& fields) {
  Grid as_data = grid;
  if (!same_points(grid.latitudes, fields.grid().latitudes)) {
    std::reverse(as_data.latitudes.begin(), as_data.latitudes.end());
    is_turned_ = true;
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
                      ", the data in ", shown(expected)),
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
  return is_turned_ ? field.flip({1}) : field;
}

}  // namespace vit_hybrid::data
