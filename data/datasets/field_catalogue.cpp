// Names of ERA5's variables, the search for channels, and the layout of what was found.
#include "data/datasets/field_catalogue.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "data/datasets/forcings.h"
#include "data/datasets/year_files.h"
#include "data/hdf5/hdf5_fields.h"
#include "data/hdf5/hdf5_layout.h"
#include "data/zarr/zarr_fields.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

using Names = std::vector<std::string>;

// What one variable is called: the short name of ECMWF's parameter database first, then that in GRIB and NetCDF, the
// long one of the Climate Data Store and WeatherBench 2, makani's, and CMIP's.
const std::vector<Names>& names_of_era5() {
  static const std::vector<Names> kNames = {
      {"u10", "10u", "10m_u_component_of_wind", "u10m", "uas"},
      {"v10", "10v", "10m_v_component_of_wind", "v10m", "vas"},
      {"u100m", "100u", "100m_u_component_of_wind"},
      {"v100m", "100v", "100m_v_component_of_wind"},
      {"t2m", "2t", "2m_temperature", "tas"},
      {"d2m", "2d", "2m_dewpoint_temperature"},
      {"sp", "surface_pressure", "ps"},
      {"msl", "mean_sea_level_pressure", "mslp", "psl"},
      {"tcwv", "total_column_water_vapour", "total_column_water_vapor"},
      {"tcw", "total_column_water"},
      {"tp", "total_precipitation"},
      {"tp6h", "total_precipitation_6hr"},
      {"tp24h", "total_precipitation_24hr"},
      {"sst", "sea_surface_temperature"},
      {"skt", "skin_temperature"},
      {"tcc", "total_cloud_cover"},
      {"z", "geopotential"},
      {"t", "temperature", "ta"},
      {"u", "u_component_of_wind", "ua"},
      {"v", "v_component_of_wind", "va"},
      {"w", "vertical_velocity", "wap"},
      {"q", "specific_humidity", "hus"},
      {"r", "relative_humidity", "hur"},
      {"vo", "vorticity"},
      {"d", "divergence"},
      {"orography", "geopotential_at_surface", "surface_geopotential", "zsfc", "orog", "oro", "surface_altitude"},
      {"lsm", "land_sea_mask", "LSM", "sftlf"}};
  return kNames;
}

// A number as names have it: "50", "0.5".
std::string level_text(double level) {
  return str(level);
}

std::optional<double> level_of(std::string_view text) {
  double level = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), level);
  const bool is_level = error == std::errc() && end == text.data() + text.size() && std::isfinite(level) && level > 0;
  return is_level ? std::optional(level) : std::nullopt;
}

std::vector<std::string> split_at(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// The powers of the words in a unit, none of which is 0; a text that is no product of powers is one word.
std::map<std::string, int> powers_of_unit(const std::string& unit) {
  if (unit.starts_with('(') || unit == "~" || unit == "dimensionless") {
    return {};  // what ECMWF writes for fractions, and where there is none
  }
  const auto is_letter = [](char c) {
    return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '%' || c == '_';
  };
  std::map<std::string, int> powers;
  int sign = 1;
  for (size_t at = 0; at < unit.size();) {
    const char c = unit[at];
    if (c == ' ' || c == '.' || c == '*' || c == '/') {
      sign = c == '/' ? -1 : sign;
      ++at;
      continue;
    }
    const size_t begin = at;
    while (at < unit.size() && is_letter(unit[at])) {
      ++at;
    }
    const std::string word = unit.substr(begin, at - begin);
    at += unit.compare(at, 2, "**") == 0 ? 2 : at < unit.size() && unit[at] == '^' ? 1 : 0;
    int power = 1;
    const auto [end, problem] = std::from_chars(unit.data() + at, unit.data() + unit.size(), power);
    at = problem == std::errc() ? static_cast<size_t>(end - unit.data()) : at;
    if (at == begin || (word.empty() && power != 1)) {
      return {{unit, 1}};
    }
    if (!word.empty()) {
      powers[word] += sign * power;
    }
    sign = 1;
  }
  std::erase_if(powers, [](const auto& known) { return known.second == 0; });
  return powers;
}

constexpr const char* kStaticHint =
    "a static field is (latitude, longitude) in either order, without levels, alone or behind a dim of time";
constexpr const char* kFieldsHint =
    "fields are (time, latitude, longitude), with or without a dim of levels, in any order behind time, other dims of "
    "one index; latitude and longitude are lists of numbers";

// "data (time, variable, cell) of 9 x 5 x 800".
std::string dims_text(const FieldVariable& variable) {
  const bool has_names = !join(variable.dim_names, "").empty();
  return str(shown(variable.name), has_names ? str(" (", shown(join(variable.dim_names)), ")") : "", " of ",
             join(variable.shape, " x "));
}

// "it has t (4 levels), u10, fields (u10, z500)"; where no array holds fields, what there is instead.
std::string variables_text(std::span<const FieldVariable> variables) {
  constexpr size_t kMostNames = 40;
  Names fields, others;
  for (const FieldVariable& variable : variables) {
    const auto levels = variable.levels.size();
    const std::string in_it = levels > 0 ? counted(levels, "level") : shown(join(variable.channels));
    if (variable.dims.empty()) {
      others.push_back(dims_text(variable));
    } else {
      fields.push_back(shown(variable.name) + (in_it.empty() ? "" : str(" (", in_it, ")")));
    }
  }
  Names& texts = fields.empty() ? others : fields;
  const size_t more = texts.size() - std::min(texts.size(), kMostNames);
  texts.resize(texts.size() - more);
  return texts.empty()    ? "it has no array of three dims"
         : fields.empty() ? str("none of its arrays holds fields: ", join(texts), "; ", kFieldsHint)
                          : str("it has ", join(texts), more == 0 ? "" : str(" and ", more, " more"));
}

// All names of the one of ERA5's variables that is called so; null where none is.
const Names* names_beside(const std::string& name) {
  const auto& all = names_of_era5();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Names& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  });
  return found == all.end() ? nullptr : &*found;
}

// The first of the names that one of ERA5's variables has; else the name itself.
std::string first_name(const std::string& name) {
  const Names* const names = names_beside(name);
  return names == nullptr ? name : names->front();
}

// Of "u10" and "v10", and all other names of variables, which may end as levels do and mean none.
bool is_surface_name(const std::string& name) {
  return names_beside(name) != nullptr;
}

// "z500" into "z" and 500; nothing where no level is at its end.
std::optional<std::pair<std::string, double>> split_level(const std::string& name) {
  const size_t end = name.find_last_not_of("0123456789.");
  const auto level = end == std::string::npos ? std::nullopt : level_of(std::string_view(name).substr(end + 1));
  if (!level) {
    return std::nullopt;
  }
  const std::string base = name.substr(0, end + 1), without = name.substr(0, end);
  return std::pair(base.ends_with('_') && names_beside(without) != nullptr ? without : base, *level);  // anemoi's z_500
}

// Of the names that there are, and those of forcings that are computed.
std::string nearest_text(const std::string& asked, Names all) {
  const Names computed = forcing_names();
  all.insert(all.end(), computed.begin(), computed.end());
  const std::string nearest = nearest_word(asked, all);
  return str("nearest is '", shown(nearest), "'", forcing_named(nearest) ? ", a forcing that is computed" : "");
}

class Search {
 public:
  Search(const FieldQuery& query, std::span<const FieldVariable> variables, const std::string& where)
      : variables_(variables), where_(where) {
    for (const std::string& pair : names_in(query.variables)) {
      const auto parts = split_at(pair, '=');
      if (parts.size() != 2 || parts[0].empty() || parts[1].empty()) {
        throw Error(ErrorClass::kUsage, str("--variables has '", shown(pair), "'"),
                    "give pairs of a name and what the files call it, such as z=phi,t=temp");
      }
      own_names_.emplace_back(parts[0], parts[1]);
    }
  }

  void require_own_names() const {
    for (const auto& [mine, theirs] : own_names_) {
      if (!is_there(theirs)) {
        throw Error(ErrorClass::kBadData,
                    str(where_, " has no variable '", shown(theirs), "', which --variables calls ", shown(mine)),
                    variables_text(variables_));
      }
    }
  }

  // All channels of one entry of the list: "u10", "z500", "z:500:850".
  std::vector<ChannelPlace> of_entry(const std::string& entry) const {
    const auto parts = split_at(entry, ':');
    if (parts.size() == 1) {
      return {of_name(entry)};
    }
    std::vector<ChannelPlace> found;
    for (size_t i = 1; i < parts.size(); ++i) {
      const auto level = level_of(parts[i]);
      if (!level) {
        throw Error(ErrorClass::kUsage,
                    str("--channels has '", shown(entry), "', of which '", shown(parts[i]), "' is no level"),
                    "levels are numbers in hPa, such as z:500:850");
      }
      found.push_back(of_level(parts[0], *level));
    }
    return found;
  }

  // Of what has no levels: the geopotential at the surface may have the name of the one on levels, NCAR's a large one.
  size_t of_static(const std::string& name) const {
    const auto find = [&](const std::string& called) {
      return find_variable(called, [](const FieldVariable& v) { return v.levels.empty() && !v.dims.empty(); });
    };
    const std::string first = first_name(name);
    const FieldVariable* found = find(name);
    for (const char* other : {"orography", "z", "Z"}) {
      const bool is_height = first == "orography" || first == "z" || first == "Z";
      found = is_height && found == nullptr ? find(other) : found;
    }
    if (found == nullptr) {
      fail_static(name);
    }
    return number_of(*found);
  }

 private:
  bool is_there(const std::string& name) const {
    return std::any_of(variables_.begin(), variables_.end(),
                       [&](const FieldVariable& variable) { return variable.name == name; });
  }

  ChannelPlace of_name(const std::string& name) const {
    if (const auto listed = in_list(name)) {
      return *listed;
    }
    const FieldVariable* const whole =
        find_variable(name, [](const FieldVariable& v) { return v.levels.empty() && !v.dims.empty(); });
    const auto split = split_level(name);
    const FieldVariable* const with_levels = split ? find_levels(split->first) : nullptr;
    const int64_t plane = with_levels != nullptr ? plane_of(*with_levels, split->second) : -1;
    if (whole != nullptr && plane >= 0 && whole->name == name && !is_surface_name(name)) {
      throw Error(ErrorClass::kBadData,
                  str(where_, ": channel '", name, "' may be the variable ", whole->name, " or ", with_levels->name,
                      " at ", level_text(split->second), " hPa"),
                  str("write ", split->first, ":", level_text(split->second), " for the level"));
    }
    if (whole != nullptr) {
      return {name, number_of(*whole), 0};
    }
    if (plane >= 0) {
      return {name, number_of(*with_levels), plane};
    }
    fail(name, name, with_levels != nullptr ? with_levels : find_levels(name));
  }

  // Of the channels that a dataset's own list names, in these words or others.
  std::optional<ChannelPlace> in_list(const std::string& name) const {
    const std::string canonical = canonical_channel(name);
    const auto is_same = [&](const std::string& listed) { return listed == name; };
    const auto means_same = [&](const std::string& listed) { return canonical_channel(listed) == canonical; };
    if (const auto found = find_listed(name, is_same)) {
      return found;
    }
    return find_listed(name, means_same);
  }

  template <class Predicate>
  std::optional<ChannelPlace> find_listed(const std::string& name, const Predicate& fits) const {
    for (const FieldVariable& variable : variables_) {
      const auto listed = std::find_if(variable.channels.begin(), variable.channels.end(), fits);
      if (listed != variable.channels.end()) {
        return ChannelPlace{name, number_of(variable), listed - variable.channels.begin()};
      }
    }
    return std::nullopt;
  }

  ChannelPlace of_level(const std::string& name, double level) const {
    const std::string joined = name + level_text(level);
    const FieldVariable* const variable = find_levels(name);
    const int64_t plane = variable != nullptr ? plane_of(*variable, level) : -1;
    if (const auto listed = in_list(joined); plane < 0 && listed) {
      return *listed;
    }
    if (plane < 0) {
      fail(name, str(name, ":", level_text(level)), variable);
    }
    return {is_surface_name(joined) ? str(name, ":", level_text(level)) : joined, number_of(*variable), plane};
  }

  template <class Predicate>
  const FieldVariable* find_variable(const std::string& name, const Predicate& fits) const {
    const auto called = [&](const std::string& wanted) -> const FieldVariable* {
      const auto found = std::find_if(variables_.begin(), variables_.end(), [&](const FieldVariable& variable) {
        return variable.name == wanted && variable.channels.empty() && fits(variable);
      });
      return found == variables_.end() ? nullptr : &*found;
    };
    for (const auto& [mine, theirs] : own_names_) {
      if (mine == name && is_there(theirs)) {
        return called(theirs);
      }
    }
    const FieldVariable* found = called(name);
    const Names* const names = names_beside(name);
    for (size_t i = 0; names != nullptr && found == nullptr && i < names->size(); ++i) {
      found = called((*names)[i]);
    }
    return found;
  }

  const FieldVariable* find_levels(const std::string& name) const {
    return find_variable(name, [](const FieldVariable& v) { return !v.levels.empty() && !v.dims.empty(); });
  }

  // -1: it is none of the variable's.
  int64_t plane_of(const FieldVariable& variable, double level) const {
    constexpr double kSameLevel = 1e-5;
    const auto is_same = [&](double other) { return std::abs(other - level) <= kSameLevel * level; };
    const auto first = std::find_if(variable.levels.begin(), variable.levels.end(), is_same);
    if (std::count_if(variable.levels.begin(), variable.levels.end(), is_same) > 1) {
      throw Error(ErrorClass::kBadData,
                  str(where_, ": ", shown(variable.name), " has the level ", level_text(level), " hPa twice"),
                  "each level is there once");
    }
    return first == variable.levels.end() ? -1 : first - variable.levels.begin();
  }

  size_t number_of(const FieldVariable& variable) const { return static_cast<size_t>(&variable - variables_.data()); }

  // What could be written: names of variables and of channels, and of variables with levels one for each.
  Names all_names() const {
    Names all;
    for (const FieldVariable& variable : variables_) {
      if (variable.levels.empty() && variable.channels.empty() && !variable.dims.empty()) {
        all.push_back(variable.name);
      }
      all.insert(all.end(), variable.channels.begin(), variable.channels.end());
      for (const double level : variable.levels) {
        if (const Names* const names = names_beside(variable.name)) {
          all.push_back(names->front() + level_text(level));
        }
        all.push_back(str(variable.name, ":", level_text(level)));
      }
    }
    return all;
  }

  // `asked`: `name`, perhaps with a level; `with_levels`: the variable that has not this one.
  [[noreturn]] void fail(const std::string& name, const std::string& asked, const FieldVariable* with_levels) const {
    const std::string what = str(where_, " has no channel '", shown(asked), "'");
    if (with_levels != nullptr) {
      Names levels;
      std::transform(with_levels->levels.begin(), with_levels->levels.end(), std::back_inserter(levels), &level_text);
      throw Error(ErrorClass::kBadData, what, str(shown(with_levels->name), " has the levels ", join(levels), " hPa"));
    }
    if (const auto* const other = find_variable(name, [](const FieldVariable& v) { return v.dims.empty(); })) {
      throw Error(ErrorClass::kBadData, str(what, ": ", dims_text(*other), " is no field"), kFieldsHint);
    }
    const Names all = all_names();
    throw Error(ErrorClass::kBadData, what,
                all.empty() ? variables_text(variables_)
                            : str(nearest_text(asked, all), "; ", variables_text(variables_),
                                  "; --variables NAME=... gives a variable a name"));
  }

  [[noreturn]] void fail_static(const std::string& name) const {
    const std::string what = str(where_, " has no static field '", shown(name), "'");
    if (const auto* const other = find_variable(name, [](const FieldVariable& v) { return v.dims.empty(); })) {
      throw Error(ErrorClass::kBadData, str(what, ": ", dims_text(*other), " is none"), kStaticHint);
    }
    const Names all = all_names();
    throw Error(ErrorClass::kBadData, what,
                all.empty() ? str("none of its arrays is one: ", kStaticHint)
                            : str(nearest_text(name, all), "; ", variables_text(variables_),
                                  "; --variables NAME=... gives a variable a name"));
  }

  std::span<const FieldVariable> variables_;
  const std::string& where_;
  std::vector<std::pair<std::string, std::string>> own_names_;
};

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

void require_same(const ArrayLayout& first, const ArrayLayout& other, const std::string& where) {
  if (first.num_rows() != other.num_rows() || first.times != other.times) {
    throw Error(ErrorClass::kBadData,
                str(where, ": the variables ", first.name, " (", first.num_rows(), " times) and ", other.name, " (",
                    other.num_rows(), " times) have other times"),
                "all channels of a file have the same times");
  }
  if (!same_grid(first.grid, other.grid)) {
    throw Error(ErrorClass::kBadData,
                str(where, ": the variable ", first.name, " has ", grid_text(first.grid), ", ", other.name, " has ",
                    grid_text(other.grid)),
                "all channels have the same points in the same order");
  }
}

}  // namespace

std::string canonical_channel(const std::string& name) {
  const size_t colon = name.find(':');
  const auto split = split_level(name);
  if (colon == std::string::npos && (first_name(name) != name || is_surface_name(name) || !split)) {
    return first_name(name);
  }
  const std::string base = first_name(name.substr(0, std::min(colon, split ? split->first.size() : name.size())));
  const std::string level = split ? level_text(split->second) : "";
  return is_surface_name(base + level) ? str(base, ":", level) : base + level;
}

bool is_same_unit(const std::string& a, const std::string& b) {
  return powers_of_unit(a) == powers_of_unit(b);
}

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

std::vector<ChannelPlace> find_channels(const std::string& channels, const FieldQuery& query,
                                        std::span<const FieldVariable> variables, const std::string& where) {
  const Search search(query, variables, where);
  search.require_own_names();
  std::vector<ChannelPlace> found;
  for (const std::string& entry : split_channels(channels)) {
    if (entry.empty()) {
      throw Error(ErrorClass::kUsage, str("--channels is '", shown(channels), "'"),
                  "give names with commas between them, such as u10,t2m,z500 or u10,t2m,z:500:850");
    }
    for (ChannelPlace& place : search.of_entry(entry)) {
      const auto is_same = [&](const ChannelPlace& other) {
        return other.name == place.name || (other.variable == place.variable && other.plane == place.plane);
      };
      if (const auto same = std::find_if(found.begin(), found.end(), is_same); same != found.end()) {
        throw Error(ErrorClass::kUsage,
                    same->name == place.name ? str("--channels names '", shown(place.name), "' twice")
                                             : str("--channels names '", shown(same->name), "' and '",
                                                   shown(place.name), "', which are one channel of ", where),
                    "give each channel once");
      }
      found.push_back(std::move(place));
    }
  }
  return found;
}

size_t find_static_field(const std::string& name, const FieldQuery& query, std::span<const FieldVariable> variables,
                         const std::string& where) {
  return Search(query, variables, where).of_static(name);
}

ArrayLayout join_arrays(std::span<const ChannelPlace> channels, std::span<const FieldVariable> variables,
                        const std::function<ArrayLayout(const FieldVariable&)>& inspect, const std::string& where) {
  ArrayLayout field;
  field.storage = ArrayLayout::Storage::kJoined;
  std::vector<size_t> used;  // numbers of variables, those of field.arrays
  Names names;
  for (size_t channel = 0; channel < channels.size(); ++channel) {
    const ChannelPlace& place = channels[channel];
    names.push_back(place.name);
    const auto known = std::find(used.begin(), used.end(), place.variable);
    const int64_t array = known - used.begin();
    if (known == used.end()) {
      used.push_back(place.variable);
      field.arrays.push_back(inspect(variables[place.variable]));
    }
    ChannelRun* const before = field.runs.empty() ? nullptr : &field.runs.back();
    if (before != nullptr && before->array == array && before->plane + before->count == place.plane) {
      ++before->count;
    } else {
      field.runs.push_back({array, static_cast<int64_t>(channel), place.plane, 1});
    }
  }
  const ArrayLayout& first = field.arrays.front();
  Names array_names;
  bool is_packed = false;
  for (const ArrayLayout& array : field.arrays) {
    require_same(first, array, where);
    is_packed = is_packed || array.type != first.type || !array.packing.is_identity();
    field.grid = joined_grid(field.grid, array.grid);
    array_names.push_back(array.name);
  }
  field.name = join(array_names);
  field.type = is_packed || !c10::isFloatingType(first.type) ? at::kFloat : first.type;
  field.times = first.times;
  field.chosen = first.chosen;
  field.file_bytes = first.file_bytes;
  field.attribute = join(names, ",");
  const auto extent = [&](DimKind kind) {
    const auto dim = std::find(first.dims.begin(), first.dims.end(), kind);
    return first.shape[static_cast<size_t>(dim - first.dims.begin())];
  };
  field.shape = {first.num_rows(), std::ssize(channels), extent(DimKind::kLatitude), extent(DimKind::kLongitude)};
  for (const ArrayLayout& array : field.arrays) {
    for (size_t d = 0; d < array.dims.size(); ++d) {
      const bool is_other = (array.dims[d] == DimKind::kLatitude && array.shape[d] != field.shape[2]) ||
                            (array.dims[d] == DimKind::kLongitude && array.shape[d] != field.shape[3]);
      if (is_other) {
        throw Error(ErrorClass::kBadData,
                    str(where, ": the variables ", first.name, " (", join(first.shape), ") and ", array.name, " (",
                        join(array.shape), ") have other numbers of points"),
                    "all channels have the same latitudes and longitudes");
      }
    }
  }
  field.chunk = chunk_of_field(field.arrays, field.shape);
  return field;
}

namespace {

ArrayLayout inspect_all_rows(const std::string& path, const FieldQuery& query, bool is_whole) {
  if (is_zarr_store(path)) {
    const std::string& channels = query.channels.empty() ? query.channels_otherwise : query.channels;
    const ZarrFields fields(path);
    const std::vector<FieldVariable> variables = fields.variables();
    if (channels.empty()) {
      refuse_without_names(path, "is a Zarr store", variables);
    }
    return join_arrays(
        find_channels(channels, query, variables, path), variables,
        [&](const FieldVariable& variable) { return fields.inspect(variable, is_whole, query.dates); }, path);
  }
  const bool has_dataset = query.channels.empty() && has_hdf5_object(path, query.dataset);
  const std::string& channels = query.channels.empty() && !has_dataset ? query.channels_otherwise : query.channels;
  const std::vector<FieldVariable> variables = has_dataset ? std::vector<FieldVariable>() : hdf5_field_variables(path);
  if (channels.empty()) {
    const bool has_fields = std::any_of(variables.begin(), variables.end(),
                                        [](const FieldVariable& variable) { return !variable.dims.empty(); });
    if (has_fields) {
      refuse_without_names(path, str("has no dataset '", shown(query.dataset), "'"), variables);
    }
    return is_whole ? inspect_dataset(path, query.dataset, "channels")
                    : outline_dataset(path, query.dataset, "channels");
  }
  return join_arrays(
      find_channels(channels, query, variables, path), variables,
      [&](const FieldVariable& variable) { return inspect_hdf5_variable(path, variable, is_whole); }, path);
}

}  // namespace

StoredTimes stored_times(const std::string& path, const std::string& array) {
  return is_zarr_store(path) ? ZarrFields(path).times_of(array) : hdf5_times(path, array);
}

ArrayLayout inspect_fields(const std::string& path, const FieldQuery& query, Inspection inspection) {
  ArrayLayout layout = inspect_all_rows(path, query, inspection == Inspection::kWhole);
  if (!query.dates.empty() && !layout.chosen) {
    const StoredTimes times = stored_times(path, layout.stored_arrays().front()->name);
    layout.chosen = rows_of_dates(query.dates, times.values, layout.times, path);
  }
  return layout;
}

std::vector<ArrayLayout> inspect_static_fields(const std::string& path, const std::vector<std::string>& names,
                                               const FieldQuery& query) {
  std::optional<ZarrFields> store;
  if (is_zarr_store(path)) {
    store.emplace(path);
  }
  std::vector<FieldVariable> variables = store ? store->variables() : hdf5_field_variables(path);
  for (FieldVariable& variable : variables) {
    variable.dims = static_dims(variable.shape, variable.told);
    variable.levels.clear();
    variable.channels.clear();
  }
  std::vector<ArrayLayout> layouts;
  for (const std::string& name : names) {
    const FieldVariable& variable = variables[find_static_field(name, query, variables, path)];
    // Chunks of nothing but the fill value are not stored: of a mask whole bands of the sea.
    layouts.push_back(store ? store->inspect(variable, false) : inspect_hdf5_variable(path, variable, true));
  }
  return layouts;
}

}  // namespace vit_hybrid::data
