// What `data inspect` calls variables, and how it tells of times.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "data/tools/inspect_variables.h"

namespace vit_hybrid::data {
namespace {

using Words = std::vector<std::string>;

FieldVariable variable_named(const std::string& name, const std::vector<double>& levels = {}) {
  FieldVariable variable;
  variable.name = name;
  variable.shape = {3, 4, 8};
  variable.levels = levels;
  variable.dims = {DimKind::kTime, DimKind::kLatitude, DimKind::kLongitude};
  if (!levels.empty()) {
    variable.shape.insert(variable.shape.begin() + 1, std::ssize(levels));
    variable.dims.insert(variable.dims.begin() + 1, DimKind::kLevel);
  }
  return variable;
}

TEST_CASE("inspected variables: channels have ERA5's short names, or what else finds them") {
  FieldVariable listed = variable_named("upper");
  listed.dims.insert(listed.dims.begin() + 1, DimKind::kChannel);
  listed.channels = {"w500", "cloud,ice"};
  const std::vector<FieldVariable> variables = {variable_named("geopotential", {50, 500, 0.5}),
                                                variable_named("u", {10, 850}),
                                                variable_named("u10"),
                                                variable_named("2m_temperature"),
                                                variable_named("foo"),
                                                variable_named("t", {850, 850}),
                                                variable_named("a,b"),
                                                listed};
  const std::vector<Words> expected = {
      {"z50", "z500", "z0.5"}, {"u:10", "u850"}, {"u10"}, {"t2m"}, {"foo"}, {"", ""}, {""}, {"w500", ""}};
  for (size_t i = 0; i < variables.size(); ++i) {
    CHECK_MESSAGE(words_of_channels(variables, i, "x.zarr") == expected[i], variables[i].name);
  }
  // Two of one quantity: each is asked for by its own name.
  const std::vector<FieldVariable> twice = {variable_named("2t"), variable_named("t2m")};
  CHECK(words_of_channels(twice, 0, "x.zarr") == Words{"2t"});
  CHECK(words_of_channels(twice, 1, "x.zarr") == Words{"t2m"});
}

TEST_CASE("inspected variables: times in one line") {
  const TimeAxis hours = time_axis({0, 6, 12, 24, 30, 42}, "hours since 2001-01-01", "");
  CHECK(times_text(hours, 6) ==
        "6 from 2001-01-01 00:00:00 to 2001-01-02 18:00:00, 6 hours apart, 2 gaps (the first before row 3)");
  CHECK(times_text(time_axis({3}, "days since 2001-01-01", "noleap"), 1).ends_with(", calendar noleap"));
  CHECK(times_text(time_axis({0, 1, 2}, "", ""), 3) == "3 from 0 to 2, without units");
  CHECK(times_text({}, 1) == "1 row, without times");
}

}  // namespace
}  // namespace vit_hybrid::data
