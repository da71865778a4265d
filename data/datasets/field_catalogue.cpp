// What the dims of arrays count, and the layout of the channels that were found in one file or several.
#include "data/datasets/field_catalogue.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "data/datasets/field_share.h"
#include "data/datasets/year_files.h"
#include "data/hdf5/hdf5_layout.h"
#include "data/zarr/zarr_fields.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

// Of an array that is read in part, in the field's dims; empty where it is one run of bytes.
std::vector<int64_t> chunk_of_field(const std::vector<ArrayLayout>& arrays, const std::vector<int64_t>& shape) {
  int64_t rows = 0, latitudes = 1;
  for (const ArrayLayout& array : arrays) {
    for (size_t d = 0; d < array.chunk.size(); ++d) {
      rows = d == 0 ? std::max(rows, array.chunk[0]) : rows;
      latitudes = array.dims[d] == DimKind::kLatitude ? std::lcm(latitudes, array.chunk[d]) : latitudes;
    }
  }
  return rows == 0 ? std::vector<int64_t>{}
                   : std::vector<int64_t>{rows, shape[1], std::min(latitudes, shape[2]), shape[3]};
}

// Where there are variables, names of channels are what is missing.
[[noreturn]] void refuse_without_names(const std::string& path, const std::string& why,
                                       std::span<const FieldVariable> variables) {
  throw Error(
      ErrorClass::kBadData, str(path, " ", why),
      str("name what is wanted of its variables with --channels u10,t2m,z500,...: ", variables_text(variables)));
}

// `grid` is what is known of the points of the arrays before `other`, of which `first` is one.
void require_same(const ArrayLayout& first, const Grid& grid, const ArrayLayout& other, const std::string& where) {
  if (first.num_rows() != other.num_rows() || first.times != other.times) {
    throw Error(ErrorClass::kBadData,
                str(where, ": the variables ", first.name, " (", first.num_rows(), " times) and ", other.name, " (",
                    other.num_rows(), " times) have other times"),
                "all channels of a file have the same times");
  }
  if (!same_grid(grid, other.grid)) {
    throw Error(ErrorClass::kBadData,
                str(where, ": the variable ", first.name, " has ", grid_text(grid), ", ", other.name, " has ",
                    grid_text(other.grid)),
                "all channels have the same points in the same order");
  }
}

// Checks the arrays of a field, and says of it what they have together; the number of channels is known.
void describe_together(ArrayLayout& field, const std::string& where) {
  const ArrayLayout& first = field.arrays.front();
  const auto points = [](const ArrayLayout& array) {
    return std::pair(array.shape[dim_of(array.dims, DimKind::kLatitude)],
                     array.shape[dim_of(array.dims, DimKind::kLongitude)]);
  };
  field.shape = {first.num_rows(), field.shape[1], points(first).first, points(first).second};
  field.type = c10::isFloatingType(first.type) ? first.type : at::kFloat;
  field.times = first.times;
  field.chosen = first.chosen ? first.chosen : field.chosen;
  std::vector<std::string> names;
  std::set<int64_t> missing;
  for (const ArrayLayout& array : field.arrays) {
    require_same(first, field.grid, array, where);
    if (points(array) != points(first)) {
      throw Error(ErrorClass::kBadData,
                  str(where, ": the variables ", first.name, " (", join(first.shape), ") and ", array.name, " (",
                      join(array.shape), ") have other numbers of points"),
                  "all channels have the same latitudes and longitudes");
    }
    if (array.type != first.type || !array.packing.is_identity()) {
      field.type = at::kFloat;
    }
    if (array.usable) {
      field.usable = common_part(field.usable.value_or(*array.usable), *array.usable);
    }
    field.grid = joined_grid(field.grid, array.grid);
    names.push_back(array.name);
    missing.insert(array.missing.begin(), array.missing.end());
  }
  field.name = join(names);
  field.missing = {missing.begin(), missing.end()};
  field.chunk = chunk_of_field(field.arrays, field.shape);
}

}  // namespace

std::vector<DimKind> field_dims(const std::vector<int64_t>& shape, std::vector<DimKind> told) {
  constexpr size_t kWithoutLevel = 3;
  const auto count = [&](auto kind) { return std::count(told.begin(), told.end(), kind); };
  if (shape.size() < kWithoutLevel || told.size() != shape.size()) {
    return {};
  }
  if (told.front() == DimKind::kUnknown || told.front() == DimKind::kOther) {
    told.front() = DimKind::kTime;
  }
  const bool is_untold = std::all_of(told.begin() + 1, told.end(), [](DimKind kind) {
    return kind == DimKind::kUnknown || kind == DimKind::kChannel || kind == DimKind::kLevel;
  });
  if (is_untold && shape.size() <= kFieldDims) {
    told[shape.size() - 2] = DimKind::kLatitude;
    told[shape.size() - 1] = DimKind::kLongitude;
    if (shape.size() == kFieldDims && told[1] == DimKind::kUnknown) {
      told[1] = DimKind::kLevel;
    }
  }
  for (size_t d = 1; d < shape.size(); ++d) {
    const bool is_open = told[d] == DimKind::kUnknown || told[d] == DimKind::kOther;
    told[d] = is_open && shape[d] == 1 ? DimKind::kSingle : told[d];
  }
  const bool fits = told.front() == DimKind::kTime && count(DimKind::kTime) == 1 && count(DimKind::kLatitude) == 1 &&
                    count(DimKind::kLongitude) == 1 && count(DimKind::kUnknown) + count(DimKind::kOther) == 0 &&
                    count(DimKind::kLevel) + count(DimKind::kChannel) <= 1;
  return fits ? told : std::vector<DimKind>{};
}

std::vector<DimKind> static_dims(const std::vector<int64_t>& shape, const std::vector<DimKind>& told) {
  const auto of_one_field = [](std::vector<DimKind> dims) {
    const bool has_planes =
        std::any_of(dims.begin(), dims.end(), [](DimKind k) { return k == DimKind::kLevel || k == DimKind::kChannel; });
    return has_planes ? std::vector<DimKind>{} : dims;
  };
  const bool is_of_something_else = !told.empty() && told.front() == DimKind::kOther && shape.front() > 1;
  std::vector<DimKind> dims =
      is_of_something_else ? std::vector<DimKind>{} : of_one_field(field_dims(shape, told));  // behind a time
  if (dims.empty()) {
    std::vector<int64_t> with_time = shape;
    std::vector<DimKind> told_with_time = told;
    with_time.insert(with_time.begin(), 1);
    told_with_time.insert(told_with_time.begin(), DimKind::kTime);
    dims = of_one_field(field_dims(with_time, std::move(told_with_time)));
    dims.erase(dims.begin(), dims.begin() + (dims.empty() ? 0 : 1));
  }
  return dims;
}

Packing checked_packing(const PackingAttributes& attributes, at::ScalarType type, const std::string& where) {
  const auto is_value = [](const std::optional<double>& value) { return value && !std::isnan(*value); };
  Packing packing;
  packing.scale = attributes.scale.value_or(1.0);
  packing.offset = attributes.offset.value_or(0.0);
  if (!std::isfinite(packing.scale) || packing.scale == 0.0 || !std::isfinite(packing.offset)) {
    throw Error(ErrorClass::kBadData, str(where, ": scale_factor ", packing.scale, ", add_offset ", packing.offset),
                "both are finite, and the first is not 0");
  }
  if (is_value(attributes.fill) && is_value(attributes.missing) && *attributes.fill != *attributes.missing) {
    throw Error(ErrorClass::kBadData,
                str(where, ": _FillValue ", *attributes.fill, " and missing_value ", *attributes.missing, " differ"),
                "one value says that another is missing");
  }
  packing.has_fill = is_value(attributes.fill) || is_value(attributes.missing);
  const double fill = is_value(attributes.fill) ? *attributes.fill : packing.has_fill ? *attributes.missing : 0.0;
  packing.fill = type == at::kFloat ? static_cast<float>(fill) : fill;  // as values are compared
  return packing;
}

std::vector<double> levels_in_hpa(std::vector<double> levels, const std::string& units) {
  constexpr double kMostHpa = 1100.0;
  constexpr double kPascals = 100.0;  // of one hPa
  const bool is_high = std::any_of(levels.begin(), levels.end(), [](double level) { return level > kMostHpa; });
  if (units == "Pa" || (units.empty() && is_high)) {
    std::transform(levels.begin(), levels.end(), levels.begin(), [](double level) { return level / kPascals; });
  }
  return levels;
}

ArrayLayout join_arrays(std::span<const ChannelPlace> channels, std::span<const FieldVariable> variables,
                        const std::function<ArrayLayout(const FieldVariable&)>& inspect, const std::string& where) {
  ArrayLayout field;
  field.storage = ArrayLayout::Storage::kJoined;
  std::vector<size_t> used;  // numbers of variables, those of field.arrays
  std::vector<std::string> names;
  for (size_t channel = 0; channel < channels.size(); ++channel) {
    const ChannelPlace& place = channels[channel];
    names.push_back(place.name);
    if (!place.is_there) {
      continue;
    }
    const auto known = std::find(used.begin(), used.end(), place.variable);
    const int64_t array = known - used.begin();
    if (known == used.end()) {
      used.push_back(place.variable);
      field.arrays.push_back(inspect(variables[place.variable]));
    }
    ChannelRun* const before = field.runs.empty() ? nullptr : &field.runs.back();
    if (before != nullptr && before->array == array && before->plane + before->count == place.plane &&
        before->channel + before->count == static_cast<int64_t>(channel)) {
      ++before->count;
    } else {
      field.runs.push_back({array, static_cast<int64_t>(channel), place.plane, 1});
    }
  }
  field.attribute = join(names, ",");
  field.shape = {0, std::ssize(channels), 0, 0};
  describe_together(field, where);
  field.file_bytes = field.arrays.front().file_bytes;
  return field;
}

namespace {

using InspectVariable = std::function<ArrayLayout(const FieldVariable&)>;

ArrayLayout inspect_channels(const std::string& channels, const FieldQuery& query,
                             std::span<const FieldVariable> variables, const InspectVariable& inspect,
                             const std::string& path, MissingChannels missing) {
  const std::vector<ChannelPlace> places = find_channels(channels, query, variables, path, missing);
  if (std::any_of(places.begin(), places.end(), [](const ChannelPlace& place) { return place.is_there; })) {
    ArrayLayout fields = join_arrays(places, variables, inspect, path);
    fields.unknown = unknown_own_names(query, variables);
    return fields;
  }
  const auto field = std::find_if(variables.begin(), variables.end(), [](const auto& v) { return !v.dims.empty(); });
  if (field == variables.end()) {
    find_channels(channels, query, variables, path);  // throws
  }
  ArrayLayout none;
  none.storage = ArrayLayout::Storage::kJoined;
  none.arrays = {inspect(*field)};
  none.arrays.front().unwritten.clear();  // nobody reads it
  none.arrays.front().missing_filters.clear();
  none.shape = {none.arrays.front().num_rows(), std::ssize(places), 0, 0};
  none.times = none.arrays.front().times;
  none.chosen = none.arrays.front().chosen;
  none.usable = none.arrays.front().usable;
  none.file_bytes = none.arrays.front().file_bytes;
  std::vector<std::string> names;
  std::transform(places.begin(), places.end(), std::back_inserter(names), [](const auto& place) { return place.name; });
  none.attribute = join(names, ",");
  none.unknown = unknown_own_names(query, variables);
  return none;
}

// Gives `fields` the channels of `more`, which has the same times.
void add_channels(RowFile& fields, const RowFile& more) {
  ArrayLayout& to = fields.layout;
  const std::vector<std::string> names = split_channels(to.attribute);
  const auto first_array = std::ssize(to.arrays);
  for (ChannelRun run : more.layout.runs) {
    for (int64_t channel = run.channel; channel < run.channel + run.count; ++channel) {
      if (const ArrayLayout& there = to.array_of(channel); &there != &to) {
        throw Error(ErrorClass::kBadData,
                    str(fields.path_of(there), " and ", more.path, " both have the channel ",
                        shown(names[static_cast<size_t>(channel)]), " at the same times"),
                    "each time may be in one file only: move one of them out of the folder");
      }
    }
    run.array += first_array;
    to.runs.push_back(run);
  }
  std::sort(to.runs.begin(), to.runs.end(),
            [](const ChannelRun& a, const ChannelRun& b) { return a.channel < b.channel; });
  for (const ArrayLayout& array : more.layout.arrays) {
    to.arrays.push_back(array);
    to.arrays.back().file = more.path;
  }
  describe_together(to, str(fields.path, " and ", more.path));
}

bool contains_levels(const std::string& hint) {
  return hint.find(" has the levels ") != std::string::npos;
}

// Whether the joined file has the channel.
bool has_channel(const RowFile& file, int64_t channel) {
  return &file.layout.array_of(channel) != &file.layout;
}

// Joined files that have a channel: the nearest in time before and behind one that lacks it, and the first to be told
// of: one of them, else any other. Null where there is none.
struct ChannelHolders {
  const RowFile* before = nullptr;
  const RowFile* behind = nullptr;
  const RowFile* first = nullptr;
};

ChannelHolders holders_of(const RowFile& file, const std::vector<RowFile>& all, int64_t channel) {
  ChannelHolders holders;
  const RowFile* other = nullptr;
  for (const RowFile& of : all) {
    if (of.layout.storage != ArrayLayout::Storage::kJoined || !has_channel(of, channel)) {
      continue;
    }
    const TimeAxis &times = of.layout.times, &own = file.layout.times;
    const bool have_dates = times.kind == TimeAxis::Kind::kDates && own.kind == times.kind;
    if (have_dates && times.last < own.first) {
      auto& before = holders.before;
      before = before == nullptr || before->layout.times.last < times.last ? &of : before;
    } else if (have_dates && times.first > own.last) {
      auto& behind = holders.behind;
      behind = behind == nullptr || behind->layout.times.first > times.first ? &of : behind;
    } else if (other == nullptr) {
      other = &of;
    }
  }
  holders.first = holders.before != nullptr ? holders.before : holders.behind != nullptr ? holders.behind : other;
  return holders;
}

// A file without some channel: another one may have it at other dates. `paths`: of all files of its times, also those
// of which nothing is taken.
[[noreturn]] void refuse_lacking(const RowFile& file, const std::vector<RowFile>& all,
                                 const std::set<std::string>& paths, const FieldQuery& query) {
  const std::vector<std::string> names = split_channels(file.layout.attribute);
  const auto span = [](const RowFile& of) {
    const TimeAxis& times = of.layout.times;
    return times.kind == TimeAxis::Kind::kDates
               ? str(time_text(times, times.first), " to ", time_text(times, times.last), ", ",
                     counted(of.layout.num_rows(), "time"))
               : "no dates";
  };
  FieldQuery known = query;  // of whose own names the file has all
  std::vector<std::string> own_names = names_in(query.variables);
  for (const std::string& name : file.layout.unknown) {
    std::erase_if(own_names, [&](const std::string& pair) { return pair.ends_with("=" + name); });
  }
  known.variables = join(own_names, ",");
  // What is said of the file alone, which may have the variable at other levels.
  const auto hint_of_one = [&](const std::string& name) -> std::string {
    try {
      inspect_fields(file.path, known);
    } catch (const Error& error) {
      return error.message().ends_with("'" + name + "'") ? error.hint() + "; " : "";
    }
    return "";
  };
  for (int64_t channel = 0; channel < std::ssize(names); ++channel) {
    const auto [before, behind, first] = holders_of(file, all, channel);
    if (!has_channel(file, channel) && first != nullptr) {
      const std::string name = shown(names[static_cast<size_t>(channel)]);
      const auto path = [channel](const RowFile& of) { return of.path_of(of.layout.array_of(channel)); };
      throw Error(ErrorClass::kBadData,
                  str(file.path, " has no channel '", name, "', and no file of the same times (", span(file),
                      ") has it; ", path(*first), " has it for others (", span(*first), ")",
                      before == nullptr || behind == nullptr
                          ? ""
                          : str(", and the next one that has it is ", path(*behind), " (", span(*behind), ")")),
                  str(hint_of_one(name),
                      "files of different channels are taken together where their dates are the "
                      "same, row by row"));
    }
  }
  // A channel that is nowhere: what is said of the file whose variable has other levels, else of the first one.
  for (int64_t channel = 0; channel < std::ssize(names); ++channel) {
    if (has_channel(file, channel)) {
      continue;
    }
    FieldQuery of_one = known;
    of_one.channels = names[static_cast<size_t>(channel)];
    std::optional<Error> said;
    for (const std::string& path : paths) {
      try {
        inspect_fields(path, of_one);
      } catch (const Error& error) {
        said = !said || contains_levels(error.hint()) ? error : said;
      }
    }
    if (said) {
      throw Error(said->error_class(),
                  str(said->message(), paths.size() > 1 ? ", and no other file of its times has it" : ""),
                  said->hint());
    }
  }
  VH_ASSERT(false, file.path);
}

using ReadTimes = std::function<StoredTimes(const std::string& variable)>;

// A file none of whose rows may be read for the dates, described by its times alone; nothing where some may, or where
// no variable has dates.
std::optional<ArrayLayout> of_other_dates(const std::string& path, const AskedDates& dates,
                                          std::span<const FieldVariable> variables, const ReadTimes& read) {
  std::optional<ArrayLayout> other;
  std::set<std::string> known;  // dims, which many variables have
  for (const FieldVariable& variable : variables) {
    const std::string dim = variable.dim_names.empty() ? "" : variable.dim_names.front();
    if (variable.told.front() != DimKind::kTime || (!dim.empty() && !known.insert(dim).second)) {
      continue;
    }
    const StoredTimes times = read(variable.name);
    const TimeAxis axis = checked_time_axis(times, path);
    if (axis.kind != TimeAxis::Kind::kDates) {
      continue;
    }
    if (!rows_of_dates(dates, DateRows::kWithReach, times.values, axis, path).empty()) {
      return std::nullopt;
    }
    other.emplace();
    other->name = variable.name;
    other->shape = {std::ssize(times.values)};
    other->times = axis;
    other->chosen = other->usable = Range{};
  }
  return other;
}

// What there is to read in a file, or in a store, which is kept open.
struct Contents {
  std::optional<ZarrFields> store = {};
  bool has_dataset = false;  // FieldQuery::dataset, which is asked for
  std::vector<FieldVariable> variables = {};
};

Contents contents_of(const std::string& path, const FieldQuery& query) {
  Contents contents;
  if (is_zarr_store(path)) {
    contents.store.emplace(path);
    contents.variables = contents.store->variables();
    return contents;
  }
  contents.has_dataset = query.channels.empty() && has_hdf5_object(path, query.dataset);
  contents.variables = contents.has_dataset ? std::vector<FieldVariable>() : hdf5_field_variables(path);
  return contents;
}

ArrayLayout inspect_all_rows(const std::string& path, const FieldQuery& query, MissingChannels missing, bool is_whole) {
  Contents contents;
  try {
    contents = contents_of(path, query);
    FieldVariable dataset;
    dataset.name = query.dataset;
    dataset.told = {DimKind::kTime};
    const std::span<const FieldVariable> variables =
        contents.has_dataset ? std::span<const FieldVariable>(&dataset, 1) : contents.variables;
    const ReadTimes read = [&](const std::string& name) {
      return contents.store ? contents.store->times_of(name) : hdf5_times(path, name);
    };
    if (auto other = query.dates.span.empty() ? std::nullopt : of_other_dates(path, query.dates, variables, read)) {
      return *std::move(other);
    }
  } catch (const Error& error) {
    if (query.dates.span.empty() || error.error_class() == ErrorClass::kUsage) {
      throw;
    }
    throw Error(error.error_class(),
                str(error.message(), "; so it is not known whether it has times of ", query.dates.text()),
                error.hint());
  }
  const bool uses_others = query.channels.empty() && !contents.has_dataset;
  const std::string& channels = uses_others ? query.channels_otherwise : query.channels;
  const std::vector<FieldVariable>& variables = contents.variables;
  if (channels.empty()) {
    if (contents.store) {
      refuse_without_names(path, "is a Zarr store", variables);
    }
    if (std::any_of(variables.begin(), variables.end(), [](const FieldVariable& v) { return !v.dims.empty(); })) {
      refuse_without_names(path, str("has no dataset '", shown(query.dataset), "'"), variables);
    }
    return is_whole ? inspect_dataset(path, query.dataset, "channels")
                    : outline_dataset(path, query.dataset, "channels");
  }
  return inspect_channels(
      channels, query, variables,
      [&](const FieldVariable& variable) {
        return contents.store ? contents.store->inspect(variable, is_whole, query.dates)
                              : inspect_hdf5_variable(path, variable, is_whole);
      },
      path, missing);
}

// As join_files(), whatever FieldQuery::variables names.
std::vector<RowFile> join_by_dates(std::vector<RowFile> files, const FieldQuery& query) {
  const auto has_all = [](const RowFile& file) { return file.layout.num_lacking() == 0; };
  if (std::all_of(files.begin(), files.end(), has_all)) {
    return files;
  }
  // The file of the first channel before the others of its dates.
  const auto first_channel = [](const RowFile& file) {
    return file.layout.runs.empty() ? file.layout.shape[1] : file.layout.runs.front().channel;
  };
  std::stable_sort(files.begin(), files.end(),
                   [&](const RowFile& a, const RowFile& b) { return first_channel(a) < first_channel(b); });
  std::vector<RowFile> joined;
  std::map<uint64_t, size_t> by_dates;  // numbers of the joined ones
  std::map<uint64_t, std::set<std::string>> paths;
  for (RowFile& file : files) {
    const TimeAxis& times = file.layout.times;
    paths[times.digest].insert(file.path);
    const auto [same, is_first] = by_dates.try_emplace(times.digest, joined.size());
    const bool is_beside =
        times.kind == TimeAxis::Kind::kDates && !is_first && joined[same->second].layout.times == times;
    if (!is_beside) {
      joined.push_back(std::move(file));
    } else if (!file.layout.runs.empty()) {
      add_channels(joined[same->second], file);
    }
  }
  if (const auto lacking = std::find_if_not(joined.begin(), joined.end(), has_all); lacking != joined.end()) {
    refuse_lacking(*lacking, joined, paths[lacking->layout.times.digest], query);
  }
  return joined;
}

// A name of FieldQuery::variables may be that of a variable that one of the files has, or some.
void require_own_names(const std::vector<RowFile>& files, const FieldQuery& query) {
  for (const std::string& name : files.front().layout.unknown) {
    const bool is_nowhere = std::all_of(files.begin(), files.end(), [&](const RowFile& file) {
      return std::count(file.layout.unknown.begin(), file.layout.unknown.end(), name) > 0;
    });
    if (!is_nowhere) {
      continue;
    }
    std::vector<FieldVariable> variables;  // of the files of one time
    std::vector<std::string> paths;
    for (const RowFile& file : files) {
      if (file.layout.times == files.front().layout.times) {
        const std::vector<FieldVariable> more = contents_of(file.path, query).variables;
        variables.insert(variables.end(), more.begin(), more.end());
        paths.push_back(file.path);
      }
    }
    refuse_own_name(name, query, variables, paths.size() == 1 ? paths.front() : "each of " + join(paths));
  }
}

}  // namespace

StoredTimes stored_times(const std::string& path, const std::string& array) {
  return is_zarr_store(path) ? ZarrFields(path).times_of(array) : hdf5_times(path, array);
}

ArrayLayout inspect_fields(const std::string& path, const FieldQuery& query, MissingChannels missing,
                           Inspection inspection) {
  ArrayLayout layout = inspect_all_rows(path, query, missing, inspection == Inspection::kWhole);
  if (!query.dates.span.empty() && !layout.chosen) {
    const StoredTimes times = stored_times(path, layout.stored_arrays().front()->name);
    layout.chosen = rows_of_dates(query.dates, DateRows::kOfSpan, times.values, layout.times, path);
    layout.usable = rows_of_dates(query.dates, DateRows::kWithReach, times.values, layout.times, path);
  }
  return layout;
}

void leave_out_other_dates(std::vector<RowFile>& files, const AskedDates& dates) {
  const auto has_none = [](const RowFile& file) { return file.layout.chosen && file.layout.chosen->empty(); };
  if (std::all_of(files.begin(), files.end(), has_none) && !files.empty()) {
    const auto begin = [](const RowFile& file) { return file.layout.times.first; };
    const auto end = [](const RowFile& file) { return file.layout.times.last; };
    const RowFile& first = *std::min_element(files.begin(), files.end(),
                                             [&](const RowFile& a, const RowFile& b) { return begin(a) < begin(b); });
    const RowFile& last = *std::max_element(files.begin(), files.end(),
                                            [&](const RowFile& a, const RowFile& b) { return end(a) < end(b); });
    throw Error(ErrorClass::kBadData,
                str("nothing of ", dates.text(), " is in ", first.path,
                    files.size() == 1 ? "" : str(" and ", counted(files.size() - 1, "more file"))),
                str("the times are from ", time_text(first.layout.times, begin(first)), " to ",
                    time_text(last.layout.times, end(last))));
  }
  std::erase_if(files, [](const RowFile& file) { return file.layout.is_of_other_dates(); });
}

std::vector<RowFile> join_files(std::vector<RowFile> files, const FieldQuery& query) {
  require_own_names(files, query);
  return join_by_dates(std::move(files), query);
}

RowFile outline_first_fields(const std::vector<std::string>& paths, const FieldQuery& query) {
  std::vector<RowFile> files, others;  // of the times of the first that has some of the dates, and of other times
  int64_t lacking = 1;
  for (size_t i = 0; i < paths.size() && lacking > 0; ++i) {
    RowFile file = {paths[i], inspect_fields(paths[i], query, MissingChannels::kLeaveOut, Inspection::kOutline)};
    if ((file.layout.chosen && file.layout.chosen->empty()) ||
        (!files.empty() && file.layout.times != files.front().layout.times)) {
      others.push_back(std::move(file));
      continue;
    }
    lacking = files.empty() ? file.layout.num_lacking() : lacking - (file.layout.shape[1] - file.layout.num_lacking());
    files.push_back(std::move(file));
  }
  if (lacking > 0) {  // the others tell which times are complete
    files.insert(files.end(), std::make_move_iterator(others.begin()), std::make_move_iterator(others.end()));
    leave_out_other_dates(files, query.dates);
    require_own_names(files, query);
  }
  return join_by_dates(std::move(files), query).front();
}

std::vector<RowFile> inspect_static_fields(const std::vector<std::string>& paths, const std::vector<std::string>& names,
                                           const FieldQuery& query) {
  std::vector<Contents> files;
  std::vector<FieldVariable> variables;  // of all of them
  std::vector<size_t> ends;              // of each file's
  for (const std::string& path : paths) {
    const Contents& file = files.emplace_back(contents_of(path, {.channels = "all"}));  // not one dataset of them
    variables.insert(variables.end(), file.variables.begin(), file.variables.end());
    ends.push_back(variables.size());
  }
  for (FieldVariable& variable : variables) {
    variable.dims = static_dims(variable.shape, variable.told);
    variable.levels.clear();
    variable.channels.clear();
  }
  std::vector<RowFile> found;
  for (const std::string& name : names) {
    const size_t number =
        find_static_field(name, query, variables, paths.size() == 1 ? paths.front() : "each of " + join(paths));
    const auto file = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), number) - ends.begin());
    const std::optional<ZarrFields>& store = files[file].store;
    // Chunks of nothing but the fill value are not stored: of a mask whole bands of the sea.
    found.push_back({paths[file], store ? store->inspect(variables[number], false)
                                        : inspect_hdf5_variable(paths[file], variables[number], true)});
  }
  return found;
}

}  // namespace vit_hybrid::data
