// Names of ERA5's variables, units, and the search for channels.
#include "data/datasets/channel_search.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "data/datasets/forcings.h"
#include "data/datasets/year_files.h"
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

// Of a unit that is written out.
std::string symbol_of(const std::string& word) {
  static const std::map<std::string, std::string> kSymbols = {
      {"Kelvin", "K"},     {"kelvin", "K"},     {"degK", "K"},
      {"Celsius", "degC"}, {"celsius", "degC"}, {"degree_Celsius", "degC"},
      {"meter", "m"},      {"metre", "m"},      {"meters", "m"},
      {"metres", "m"},     {"second", "s"},     {"seconds", "s"},
      {"sec", "s"},        {"pascal", "Pa"},    {"Pascal", "Pa"},
      {"percent", "%"}};
  const auto known = kSymbols.find(word);
  return known == kSymbols.end() ? word : known->second;
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
      powers[symbol_of(word)] += sign * power;
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
  Search(const FieldQuery& query, std::span<const FieldVariable> variables, const std::string& where,
         MissingChannels missing = MissingChannels::kRefuse)
      : variables_(variables), where_(where), missing_(missing) {
    for (const std::string& pair : names_in(query.variables)) {
      const auto parts = split_at(pair, '=');
      if (parts.size() != 2 || parts[0].empty() || parts[1].empty()) {
        throw Error(ErrorClass::kUsage, str("--variables has '", shown(pair), "'"),
                    "give pairs of a name and what the files call it, such as z=phi,t=temp");
      }
      own_names_.emplace_back(parts[0], parts[1]);
    }
  }

  Names unknown_own_names() const {
    Names unknown;
    for (const auto& [mine, theirs] : own_names_) {
      const bool is_known = std::any_of(own_names_.begin(), own_names_.end(), [&, name = mine](const auto& p) {
        return p.first == name && is_there(p.second);
      });
      if (!is_known) {
        unknown.push_back(theirs);
      }
    }
    return unknown;
  }

  [[noreturn]] void refuse_own_name(const std::string& name) const {
    const auto pair =
        std::find_if(own_names_.begin(), own_names_.end(), [&](const auto& p) { return p.second == name; });
    VH_ASSERT(pair != own_names_.end(), name);
    Names all;
    std::transform(variables_.begin(), variables_.end(), std::back_inserter(all),
                   [](const FieldVariable& variable) { return variable.name; });
    throw Error(
        ErrorClass::kBadData,
        str(where_, " has no variable '", shown(name), "', which --variables calls ", shown(pair->first)),
        str(all.empty() ? "" : str("nearest is '", shown(nearest_word(name, all)), "'; "), variables_text(variables_)));
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
    if (missing_ == MissingChannels::kRefuse) {
      fail(name, name, with_levels != nullptr ? with_levels : find_levels(name));
    }
    return {name, 0, 0, false};
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
    const std::string own = is_surface_name(joined) ? str(name, ":", level_text(level)) : joined;
    if (plane < 0 && missing_ == MissingChannels::kRefuse) {
      fail(name, str(name, ":", level_text(level)), variable);
    }
    return plane < 0 ? ChannelPlace{own, 0, 0, false} : ChannelPlace{own, number_of(*variable), plane};
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
                                  "; --variables NAME=... gives a variable a name, --static-data names another file"));
  }

  std::span<const FieldVariable> variables_;
  const std::string& where_;
  const MissingChannels missing_;
  std::vector<std::pair<std::string, std::string>> own_names_;
};

}  // namespace

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

std::optional<OtherUnit> other_unit(const std::string& first, const std::string& second) {
  const std::vector<std::string> a = names_in(first), b = names_in(second);
  for (size_t i = 0; i < a.size() && a.size() == b.size(); ++i) {
    if (!a[i].empty() && !b[i].empty() && !is_same_unit(a[i], b[i])) {
      return OtherUnit{i, a[i], b[i]};
    }
  }
  return std::nullopt;
}

std::vector<ChannelPlace> find_channels(const std::string& channels, const FieldQuery& query,
                                        std::span<const FieldVariable> variables, const std::string& where,
                                        MissingChannels missing) {
  const Search search(query, variables, where, missing);
  if (const Names unknown = search.unknown_own_names(); missing == MissingChannels::kRefuse && !unknown.empty()) {
    search.refuse_own_name(unknown.front());
  }
  std::vector<ChannelPlace> found;
  for (const std::string& entry : split_channels(channels)) {
    if (entry.empty()) {
      throw Error(ErrorClass::kUsage, str("--channels is '", shown(channels), "'"),
                  "give names with commas between them, such as u10,t2m,z500 or u10,t2m,z:500:850");
    }
    for (ChannelPlace& place : search.of_entry(entry)) {
      const auto is_same = [&](const ChannelPlace& other) {
        const bool are_there = other.is_there && place.is_there;
        return other.name == place.name ||
               (are_there && other.variable == place.variable && other.plane == place.plane);
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

std::vector<std::string> unknown_own_names(const FieldQuery& query, std::span<const FieldVariable> variables) {
  return Search(query, variables, "").unknown_own_names();
}

void refuse_own_name(const std::string& name, const FieldQuery& query, std::span<const FieldVariable> variables,
                     const std::string& where) {
  Search(query, variables, where).refuse_own_name(name);
}

size_t find_static_field(const std::string& name, const FieldQuery& query, std::span<const FieldVariable> variables,
                         const std::string& where) {
  return Search(query, variables, where).of_static(name);
}

}  // namespace vit_hybrid::data
