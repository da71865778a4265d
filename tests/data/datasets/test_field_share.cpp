// Shares of fields: chunks are never cut, all is read once, and the rank with most has as little as whole chunks allow.
#include "data/datasets/field_share.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "data/datasets/field_roles.h"
#include "data/reading/row_reader.h"

namespace vit_hybrid::data {
namespace {

constexpr int64_t kHeight = 8, kWidth = 4;

// (time, level, latitude, longitude), or without levels.
ArrayLayout variable_of(int64_t levels, int64_t levels_of_chunk, int64_t rows_of_chunk) {
  ArrayLayout array;
  array.shape = {3, levels, kHeight, kWidth};
  array.chunk = {1, levels_of_chunk, rows_of_chunk, kWidth};
  array.dims = {DimKind::kTime, DimKind::kLevel, DimKind::kLatitude, DimKind::kLongitude};
  if (levels == 0) {
    array.shape.erase(array.shape.begin() + 1);
    array.chunk.erase(array.chunk.begin() + 1);
    array.dims.erase(array.dims.begin() + 1);
  }
  return array;
}

RowFile joined(std::vector<ArrayLayout> arrays, std::vector<ChannelRun> runs, int64_t rows_of_chunk) {
  ArrayLayout fields;
  fields.storage = ArrayLayout::Storage::kJoined;
  const int64_t channels = runs.back().channel + runs.back().count;
  fields.shape = {3, channels, kHeight, kWidth};
  fields.chunk = {1, channels, rows_of_chunk, kWidth};
  fields.arrays = std::move(arrays);
  fields.runs = std::move(runs);
  return {"a", fields};
}

RowFile dataset_of(int64_t channels, std::vector<int64_t> chunk) {
  ArrayLayout fields;
  fields.shape = {3, channels, kHeight, kWidth};
  fields.chunk = std::move(chunk);
  return {"b", fields};
}

// The smallest largest sum of consecutive parts, by trying all cuts.
int64_t least_most(const std::vector<int64_t>& costs, size_t begin, int64_t parts) {
  int64_t sum = 0, best = INT64_MAX;
  if (parts == 1) {
    for (size_t i = begin; i < costs.size(); ++i) {
      sum += costs[i];
    }
    return sum;
  }
  for (size_t end = begin; end <= costs.size(); ++end) {
    best = std::min(best, std::max(sum, least_most(costs, end, parts - 1)));
    sum += end < costs.size() ? costs[end] : 0;
  }
  return best;
}

}  // namespace

TEST_CASE("field shares: units of channels are whole chunks in every file") {
  const SampleChannels six{.prognostic = 6};
  const auto units = [&](const std::vector<RowFile>& files) { return field_cuts(files, six).units; };
  using Units = std::vector<ChannelUnit>;
  const Units each = {{{0, 1}, 1}, {{1, 2}, 1}, {{2, 3}, 1}, {{3, 4}, 1}, {{4, 5}, 1}, {{5, 6}, 1}};
  CHECK((units({dataset_of(6, {})}) == each));
  CHECK((units({dataset_of(6, {1, 1, kHeight, kWidth})}) == each));
  CHECK((units({dataset_of(6, {2, 4, 2, kWidth})}) == Units{{{0, 4}, 4}, {{4, 6}, 4}}));
  // Another file's chunks begin elsewhere.
  CHECK((units({dataset_of(6, {1, 2, 2, kWidth}), dataset_of(6, {1, 3, 2, kWidth})}) == Units{{{0, 6}, 6}}));
  CHECK(
      (units({dataset_of(6, {1, 2, 2, kWidth}), dataset_of(6, {1, 4, 2, kWidth})}) == Units{{{0, 4}, 4}, {{4, 6}, 2}}));
  // Two variables of one level, then one whose five levels lie in chunks of two: of the last chunk one is wanted.
  const RowFile variables = joined({variable_of(0, 0, kHeight), variable_of(0, 0, 2), variable_of(5, 2, kHeight)},
                                   {{0, 0, 0, 1}, {1, 1, 0, 1}, {2, 2, 0, 4}}, kHeight);
  CHECK((units({variables}) == Units{{{0, 1}, 1}, {{1, 2}, 1}, {{2, 4}, 2}, {{4, 6}, 2}}));
  // Levels of one chunk on both sides of another variable.
  const RowFile between = joined({variable_of(13, 13, kHeight), variable_of(0, 0, kHeight), variable_of(3, 1, kHeight)},
                                 {{0, 0, 7, 1}, {1, 1, 0, 1}, {0, 2, 10, 1}, {2, 3, 0, 3}}, kHeight);
  CHECK((units({between}) == Units{{{0, 3}, 14}, {{3, 4}, 1}, {{4, 5}, 1}, {{5, 6}, 1}}));
  CHECK(field_cuts(std::vector{variables}, six).row_unit == kHeight);
}

TEST_CASE("field shares: where the channels of inputs and targets come from") {
  const SampleChannels channels{
      .forcings = 1, .prognostic = 2, .diagnostic = 1, .history = 3, .computed = 1, .statics = 1};
  const FieldCuts cuts = field_cuts(std::vector{dataset_of(4, {})}, channels);
  CHECK(cuts.inputs == std::vector<int64_t>{0, 1, 2, 1, 2, 1, 2, 4, 4});
  CHECK(cuts.targets == std::vector<int64_t>{1, 2, 3});
  CHECK((runs_of_share(cuts.inputs, {0, 2}) == std::vector<Range>{{0, 2}, {3, 4}, {5, 6}}));
  CHECK((runs_of_share(cuts.inputs, {2, 5}) == std::vector<Range>{{2, 3}, {4, 5}, {6, 9}}));
  CHECK(runs_of_share(cuts.targets, {0, 1}).empty());
  CHECK((runs_of_share(cuts.targets, FieldShare().channels) == std::vector<Range>{{0, 3}}));
}

TEST_CASE("field shares: bands where every rank has one, else whichever leaves less to the rank with most") {
  const auto shares = [](std::vector<int64_t> chunk, int64_t ranks) {
    return share_fields(field_cuts(std::vector{dataset_of(6, std::move(chunk))}, {.prognostic = 6}), true, true, ranks);
  };
  using Shares = std::vector<FieldShare>;
  CHECK(shares({}, 1).empty());
  CHECK(share_fields({}, true, true, 4).empty());
  CHECK((shares({}, 3) == Shares{{.rows = {0, 2}}, {.rows = {2, 5}}, {.rows = {5, 8}}}));
  CHECK((shares({1, 1, 3, kWidth}, 2) == Shares{{.rows = {0, 3}}, {.rows = {3, 8}}}));
  CHECK((shares({1, 1, kHeight, kWidth}, 2) == Shares{{.channels = {0, 3}}, {.channels = {3, 7}}}));
  CHECK((shares({1, 4, kHeight, kWidth}, 2) == Shares{{.channels = {0, 4}}, {.channels = {4, 7}}}));
  // One chunk: whoever has it has all.
  CHECK((shares({1, 6, kHeight, kWidth}, 2) == Shares{{.rows = {0, 0}}, {.rows = {0, kHeight}}}));
  // Two bands or two units of four channels for three ranks: half or two thirds.
  CHECK((shares({1, 4, 4, kWidth}, 3) == Shares{{.rows = {0, 0}}, {.rows = {0, 4}}, {.rows = {4, 8}}}));
  CHECK((shares({1, 2, 4, kWidth}, 3) == Shares{{.channels = {0, 2}}, {.channels = {2, 4}}, {.channels = {4, 7}}}));
}

TEST_CASE("field shares: what is read more often counts so, and each channel is one rank's") {
  // Of the forcing one time is read, of the state three.
  const SampleChannels channels{.forcings = 3, .prognostic = 2, .history = 3, .computed = 1};
  const FieldCuts cuts = field_cuts(std::vector{dataset_of(5, {1, 1, kHeight, kWidth})}, channels);
  using Shares = std::vector<FieldShare>;
  CHECK((share_fields(cuts, true, false, 2) == Shares{{.channels = {0, 4}}, {.channels = {4, 6}}}));
  CHECK((share_fields(cuts, false, true, 2) == Shares{{.channels = {0, 4}}, {.channels = {4, 6}}}));
  CHECK(
      (share_fields(cuts, true, true, 3) == Shares{{.channels = {0, 3}}, {.channels = {3, 4}}, {.channels = {4, 6}}}));
  for (int64_t number = 0; number < 200; ++number) {
    FieldCuts random{.row_unit = kHeight, .rows = kHeight};
    std::vector<int64_t> costs;
    for (int64_t unit = 0; unit < 1 + number % 7; ++unit) {
      costs.push_back(1 + (number * 7919 + unit * 104729) % 13);
      random.units.push_back({{unit, unit + 1}, costs.back()});
      random.targets.push_back(unit);
    }
    const int64_t ranks = 2 + number % 4;
    int64_t end = 0, most = 0;
    const std::vector<FieldShare> shares = share_fields(random, false, true, ranks);
    if (shares.front().channels == FieldShare().channels) {
      CHECK(random.units.size() == 1);  // nothing to deal
      continue;
    }
    for (const FieldShare& share : shares) {
      CHECK(share.channels.begin == end);
      end = share.channels.end;
      int64_t sum = 0;
      for (int64_t unit = share.channels.begin; unit < std::min(end, std::ssize(costs)); ++unit) {
        sum += costs[static_cast<size_t>(unit)];
      }
      most = std::max(most, sum);
    }
    CHECK(end == std::ssize(costs) + 1);
    CHECK(most == least_most(costs, 0, ranks));
  }
}

}  // namespace vit_hybrid::data
