// Which variable and level a channel's name means, the dims of arrays, and the layout of what is joined.
#include "data/datasets/field_catalogue.h"

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "tests/support/contains.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid::data {

namespace {

using testing::contains;
using Kind = DimKind;
using Kinds = std::vector<Kind>;

const Kinds kWithLevels = {Kind::kTime, Kind::kLevel, Kind::kLatitude, Kind::kLongitude};
const Kinds kWithout = {Kind::kTime, Kind::kLatitude, Kind::kLongitude};

FieldVariable variable(const std::string& name, const std::vector<double>& levels = {}) {
  std::vector<int64_t> shape = {9, 4, 5};
  if (!levels.empty()) {
    shape.insert(shape.begin() + 1, static_cast<int64_t>(levels.size()));
  }
  return {name, shape, {}, levels.empty() ? kWithout : kWithLevels, levels, {}};
}

std::vector<FieldVariable> weather() {
  std::vector<FieldVariable> variables = {variable("10m_u_component_of_wind"), variable("t2m"),
                                          variable("geopotential", {10, 500, 850, 0.5}), variable("u", {10, 100, 500}),
                                          variable("phi", {500})};
  variables.push_back({"fields",
                       {9, 2, 4, 5},
                       {},
                       {Kind::kTime, Kind::kChannel, Kind::kLatitude, Kind::kLongitude},
                       {},
                       {"sst", "z1000"}});
  return variables;
}

// "t2m=t2m, z500=geopotential/1".
std::string places(const std::string& channels, const FieldQuery& query = {}) {
  const std::vector<FieldVariable> variables = weather();
  std::string text;
  for (const ChannelPlace& place : find_channels(channels, query, variables, "a.nc")) {
    text += (text.empty() ? "" : ", ") + place.name + "=" + variables[place.variable].name + "/" +
            std::to_string(place.plane);
  }
  return text;
}

Error refusal(const std::string& channels, const FieldQuery& query = {}) {
  return testing::thrown_error([&] { places(channels, query); });
}

}  // namespace

TEST_CASE("field catalogue: names of variables, of levels, of a dataset's channels") {
  CHECK(places("t2m") == "t2m=t2m/0");
  CHECK(places("2t, 2m_temperature_x", {.variables = "2m_temperature_x=10m_u_component_of_wind"}) ==
        "2t=t2m/0, 2m_temperature_x=10m_u_component_of_wind/0");
  CHECK(places("u10") == "u10=10m_u_component_of_wind/0");  // ten metres, not 10 hPa
  CHECK(places("u:10") == "u:10=u/0");
  CHECK(places("u100") == "u100=u/1");
  CHECK(places("z500,z:850:0.5,geopotential:10") ==
        "z500=geopotential/1, z850=geopotential/2, z0.5=geopotential/3, geopotential10=geopotential/0");
  CHECK(places("z500", {.variables = "z=phi"}) == "z500=phi/0");
  CHECK(places("sst,z1000") == "sst=fields/0, z1000=fields/1");
}

TEST_CASE("field catalogue: names that mean nothing, or two things") {
  const Error level = refusal("z300");
  CHECK(level.error_class() == ErrorClass::kBadData);
  CHECK(level.message() == "a.nc has no channel 'z300'");
  CHECK(contains(level.hint(), "geopotential has the levels 10, 500, 850, 0.5 hPa"));
  CHECK(contains(refusal("t2n").hint(), "nearest is 't2m'"));
  CHECK(contains(refusal("zz500").hint(), "nearest is 'z500'"));
  CHECK(contains(refusal("t:500").message(), "no channel 't:500'"));
  // Arrays that are there and hold no fields, and levels that are there twice.
  const std::vector<FieldVariable> odd = {{"sst", {9, 2, 4, 5}, {"time", "expver", "lat", "lon"}, {}, {}, {}},
                                          variable("t", {500, 850, 500})};
  const Error no_field = testing::thrown_error([&] { find_channels("sst", {}, odd, "a.nc"); });
  CHECK(contains(no_field.message(), "sst (time, expver, lat, lon) of 9 x 2 x 4 x 5 is no field"));
  CHECK(contains(testing::thrown_error([&] { find_channels("t500", {}, odd, "a.nc"); }).message(), "500 hPa twice"));
  CHECK(contains(refusal("z500", {.variables = "z=nothing"}).message(),
                 "no variable 'nothing', which --variables calls z"));
  CHECK(contains(refusal("z").hint(), "geopotential has the levels"));
  CHECK(contains(refusal("t2m,z500,t2m").message(), "'t2m' twice"));
  CHECK(contains(refusal("t2m,2t").message(), "one channel of a.nc"));
  CHECK(contains(refusal("z:500:500").message(), "'z500' twice"));
  for (const char* text : {"", "t2m,,z500", "z:", "z:500:", "z:-5", "z:nan", "z:1e999"}) {
    CAPTURE(std::string(text));
    CHECK(refusal(text).error_class() == ErrorClass::kUsage);
  }
  CHECK(refusal("t2m", {.variables = "z"}).error_class() == ErrorClass::kUsage);
  // A variable that is called as a level of another one.
  const std::vector<FieldVariable> both = {variable("q500"), variable("q", {500})};
  const Error two = testing::thrown_error([&] { find_channels("q500", {}, both, "a.nc"); });
  CHECK(contains(two.message(), "may be the variable q500 or q at 500 hPa"));
  CHECK(find_channels("q:500", {}, both, "a.nc").front().variable == 1);
}

TEST_CASE("field catalogue: one name for all names of a channel, levels, packed values") {
  for (const auto& names : {std::pair("2t", "t2m"),
                            {"t2m", "t2m"},
                            {"z:500", "z500"},
                            {"geopotential500", "z500"},
                            {"u10m", "u10"},
                            {"u:10", "u:10"},
                            {"u100", "u100"},
                            {"100u", "u100m"},
                            {"u:100", "u100"},
                            {"rain", "rain"},
                            {"c07", "c7"}}) {
    CAPTURE(std::string(names.first));
    CHECK(canonical_channel(names.first) == names.second);
  }
  CHECK(levels_in_hpa({50000, 85000}, "Pa") == std::vector<double>{500, 850});
  CHECK(levels_in_hpa({5000, 100000}, "") == std::vector<double>{50, 1000});
  CHECK(levels_in_hpa({50, 1000}, "hPa") == std::vector<double>{50, 1000});
  const double none = std::numeric_limits<double>::quiet_NaN();
  CHECK((checked_packing({}, at::kFloat, "a") == Packing()));
  CHECK((checked_packing({.fill = none, .missing = -9.0}, at::kShort, "a") == Packing{1.0, 0.0, true, -9.0}));
  CHECK((checked_packing({.fill = 0.1}, at::kFloat, "a").fill == static_cast<double>(0.1f)));
  for (const PackingAttributes& bad :
       {PackingAttributes{.scale = 0.0}, {.scale = none}, {.offset = none}, {.fill = 1.0, .missing = 2.0}}) {
    CHECK(testing::thrown_error([&] { checked_packing(bad, at::kFloat, "a"); }).error_class() == ErrorClass::kBadData);
  }
}

TEST_CASE("field catalogue: dims that are told, and those that are known by their place") {
  const auto none = [](size_t count) { return Kinds(count, Kind::kUnknown); };
  CHECK((field_dims({9, 4, 5}, none(3)) == kWithout));
  CHECK((field_dims({9, 3, 4, 5}, none(4)) == kWithLevels));
  CHECK((field_dims({9, 5, 4}, {Kind::kUnknown, Kind::kLongitude, Kind::kLatitude}) ==
         Kinds{Kind::kTime, Kind::kLongitude, Kind::kLatitude}));
  CHECK((field_dims({9, 1, 4, 5}, {Kind::kTime, Kind::kUnknown, Kind::kLatitude, Kind::kLongitude}) ==
         Kinds{Kind::kTime, Kind::kSingle, Kind::kLatitude, Kind::kLongitude}));
  for (const Kinds& told :
       {Kinds{Kind::kLatitude, Kind::kLongitude, Kind::kTime}, Kinds{Kind::kTime, Kind::kLatitude, Kind::kLatitude},
        Kinds{Kind::kTime, Kind::kUnknown, Kind::kLongitude}}) {
    CHECK(field_dims({9, 4, 5}, told).empty());
  }
  CHECK(field_dims({9, 2, 4, 5}, {Kind::kTime, Kind::kUnknown, Kind::kLatitude, Kind::kLongitude}).empty());
  CHECK(field_dims({9, 4, 5}, {Kind::kTime, Kind::kOther, Kind::kOther}).empty());  // named y and x: of 2-D coordinates
  CHECK(field_dims({4, 5}, none(2)).empty());
  CHECK(field_dims({9, 2, 3, 4, 5}, none(5)).empty());
}

TEST_CASE("field catalogue: runs of channels, types and times of what is joined") {
  const std::vector<FieldVariable> variables = weather();
  const auto array_of = [](const FieldVariable& of) {
    ArrayLayout array;
    array.name = of.name;
    array.shape = of.shape;
    array.dims = of.dims;
    array.storage = ArrayLayout::Storage::kContiguous;
    array.times = time_axis(std::vector<double>(9, 0.0), "", "");
    return array;
  };
  const auto join_with = [&](const std::function<void(ArrayLayout&)>& change) {
    const auto channels = find_channels("z850,t2m,z10,z500,z0.5", {}, variables, "a.nc");
    return join_arrays(
        channels, variables,
        [&](const FieldVariable& of) {
          ArrayLayout array = array_of(of);
          if (of.name == "t2m") change(array);
          return array;
        },
        "a.nc");
  };
  const ArrayLayout joined = join_with([](ArrayLayout&) {});
  CHECK(joined.shape == std::vector<int64_t>{9, 5, 4, 5});
  CHECK((joined.type == at::kFloat));
  CHECK(joined.attribute == "z850,t2m,z10,z500,z0.5");
  CHECK((joined.runs == std::vector<ChannelRun>{{0, 0, 2, 1}, {1, 1, 0, 1}, {0, 2, 0, 2}, {0, 4, 3, 1}}));
  CHECK(joined.array_of(1).name == "t2m");
  CHECK(joined.array_of(4).name == "geopotential");
  CHECK((join_with([](ArrayLayout& array) { array.type = at::kDouble; }).type == at::kFloat));
  CHECK((join_with([](ArrayLayout& array) { array.packing.scale = 2.0; }).type == at::kFloat));
  const auto message = [&](const std::function<void(ArrayLayout&)>& change) {
    return testing::thrown_error([&] { join_with(change); }).message();
  };
  CHECK(contains(message([](ArrayLayout& array) { array.shape[0] = 8; }), "have other times"));
  CHECK(contains(message([](ArrayLayout& array) { array.times.last = 7.0; }), "have other times"));
  CHECK(contains(message([](ArrayLayout& array) { array.shape[2] = 6; }), "other numbers of points"));
  CHECK((unpack_layouts(pack_layouts({joined})) == std::vector<ArrayLayout>{joined}));
  ArrayLayout dated = join_with([](ArrayLayout& array) {
    array.missing = {3, 8};
    array.usable = Range{2, 7};
  });
  CHECK(dated.missing == std::vector<int64_t>{3, 8});  // of any array
  CHECK((dated.usable == Range{2, 7}));
  dated.chosen = Range{4, 6};
  dated.unknown = {"phi"};
  CHECK((unpack_layouts(pack_layouts({dated})) == std::vector<ArrayLayout>{dated}));
}

TEST_CASE("field catalogue: own names that no file has, and files of other dates") {
  const std::vector<FieldVariable> variables = weather();
  CHECK(unknown_own_names({.variables = "z=phi,t=temp,q=geopotentiel"}, variables) ==
        std::vector<std::string>{"temp", "geopotentiel"});
  const FieldQuery query = {.variables = "z=geopotentiel"};
  const Error error =
      testing::thrown_error([&] { refuse_own_name("geopotentiel", query, variables, "each of a.nc, b.nc"); });
  CHECK(error.message() == "each of a.nc, b.nc has no variable 'geopotentiel', which --variables calls z");
  CHECK(contains(error.hint(), "nearest is 'geopotential'; it has "));
  CHECK(find_channels("t2m", query, variables, "a.nc", MissingChannels::kLeaveOut).size() == 1);

  const auto file = [](const char* path, double first, std::optional<Range> chosen, std::optional<Range> usable) {
    RowFile of{path, {}};
    of.layout.shape = {9};
    of.layout.times = time_axis({first, first + 6}, "hours since 1990-01-01", "");
    of.layout.chosen = chosen;
    of.layout.usable = usable;
    return of;
  };
  const Range none{0, 0}, some{2, 4};
  std::vector<RowFile> files = {file("1992.nc", 48, none, none), file("1991.nc", 24, some, some),
                                file("1990.nc", 0, none, Range{8, 9}), file("any.nc", 99, {}, {})};
  const AskedDates dates = {.span = "1991", .option = "--valid-dates"};
  leave_out_other_dates(files, dates);
  REQUIRE(files.size() == 3);
  CHECK((files[0].path == "1991.nc" && files[1].path == "1990.nc"));
  std::vector<RowFile> others = {file("1992.nc", 48, none, none), file("1990.nc", 0, none, some)};
  const Error no_date = testing::thrown_error([&] { leave_out_other_dates(others, dates); });
  CHECK(no_date.message() == "nothing of --valid-dates 1991 is in 1990.nc and 1 more file");
  CHECK(no_date.hint() == "the times are from 1990-01-01 00:00:00 to 1990-01-03 06:00:00");
}

}  // namespace vit_hybrid::data

TEST_CASE("field catalogue: units in several spellings") {
  for (const auto& [a, b] : {std::pair("m s-1", "m s**-1"),
                             {"m/s", "s-1 m"},
                             {"m**2 s**-2", "m2/s2"},
                             {"m^2.s^-2", "m2 s-2"},
                             {"kg kg**-1", "1"},
                             {"(0 - 1)", "~"},
                             {"K", "K"},
                             {"Kelvin", "K"},
                             {"metre second**-1", "m/s"},
                             {"%", "percent"},
                             {"kg m-2 s-1", "kg/m2/s"}}) {
    CAPTURE(a);
    CAPTURE(b);
    CHECK(is_same_unit(a, b));
  }
  for (const auto& [a, b] : {std::pair("K", "degC"),
                             {"Pa", "hPa"},
                             {"m s-1", "m s-2"},
                             {"m", "m2/s2"},
                             {"%", "1"},
                             {"m/s", "m s"},
                             {"gpm", "m**2 s**-2"},
                             {"1e-3 kg", "kg"}}) {
    CAPTURE(a);
    CAPTURE(b);
    CHECK(!is_same_unit(a, b));
  }
}
