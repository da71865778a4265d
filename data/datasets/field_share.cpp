// Where chunks begin, and the cuts between them that leave least to the rank with most.
#include "data/datasets/field_share.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "data/datasets/field_roles.h"
#include "data/reading/row_reader.h"

namespace vit_hybrid::data {

namespace {

// Planes of an array that a chunk of it holds.
int64_t planes_of_chunk(const ArrayLayout& array, bool is_joined) {
  if (array.chunk.empty()) {
    return 1;
  }
  if (!is_joined) {
    return array.chunk[1];
  }
  int64_t planes = 1;
  for (size_t d = 1; d < array.dims.size(); ++d) {
    const bool has_planes = array.dims[d] == DimKind::kLevel || array.dims[d] == DimKind::kChannel;
    planes = has_planes ? array.chunk[d] : planes;
  }
  return planes;
}

// For each channel the first one, and the last, in the same chunks, and what is decoded of a chunk.
std::vector<ChannelUnit> chunks_of_channels(const ArrayLayout& fields) {
  const bool is_joined = !fields.runs.empty();
  const std::vector<ChannelRun> all = {{.count = fields.shape[1]}};
  std::vector<ChannelUnit> chunks;
  std::map<std::pair<int64_t, int64_t>, size_t> known;  // by array and number along its planes
  for (const ChannelRun& run : is_joined ? fields.runs : all) {
    const ArrayLayout& array = is_joined ? fields.arrays[static_cast<size_t>(run.array)] : fields;
    const int64_t planes = planes_of_chunk(array, is_joined);
    for (int64_t i = 0; i < run.count; ++i) {
      const int64_t channel = run.channel + i;
      const auto [place, is_new] = known.insert({{run.array, (run.plane + i) / planes}, chunks.size()});
      if (is_new) {
        chunks.push_back({{channel, channel + 1}, planes});
      }
      chunks[place->second].channels.end = channel + 1;
    }
  }
  return chunks;
}

// How often a channel of these stored ones is read at most.
int64_t most_reads(const std::vector<int64_t>& sources, Range channels) {
  int64_t most = 0;
  for (int64_t channel = channels.begin; channel < channels.end; ++channel) {
    most = std::max<int64_t>(most, std::count(sources.begin(), sources.end(), channel));
  }
  return most;
}

// The units of each rank, filled one after the other up to `most`, as far as they go; the last rank has the rest.
std::vector<Range> parts_up_to(const std::vector<int64_t>& costs, int64_t most, int64_t num_ranks) {
  std::vector<Range> parts;
  int64_t next = 0;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    const int64_t begin = next;
    for (int64_t sum = 0; next < std::ssize(costs); ++next) {
      sum += costs[static_cast<size_t>(next)];
      if (sum > most && rank + 1 < num_ranks) {
        break;
      }
    }
    parts.push_back({begin, next});
  }
  return parts;
}

int64_t largest_cost(const std::vector<int64_t>& costs, const std::vector<Range>& parts) {
  int64_t largest = 0;
  for (const Range& part : parts) {
    largest = std::max(largest, std::accumulate(costs.begin() + part.begin, costs.begin() + part.end, int64_t{0}));
  }
  return largest;
}

// The smallest largest part that whole units allow.
std::vector<Range> even_parts(const std::vector<int64_t>& costs, int64_t num_ranks) {
  int64_t low = 0, high = std::accumulate(costs.begin(), costs.end(), int64_t{0});
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    const bool fits = largest_cost(costs, parts_up_to(costs, middle, num_ranks)) <= middle;
    low = fits ? low : middle + 1;
    high = fits ? middle : high;
  }
  return parts_up_to(costs, low, num_ranks);
}

}  // namespace

FieldCuts field_cuts(std::span<const RowFile> files, const SampleChannels& channels) {
  FieldCuts cuts{.row_unit = 1, .rows = files.front().layout.shape[2]};
  std::vector<bool> begins(static_cast<size_t>(channels.row()), true);  // a unit, in every file
  for (const RowFile& file : files) {
    cuts.row_unit = file.layout.chunk.empty() ? cuts.row_unit : std::lcm(cuts.row_unit, file.layout.chunk[2]);
    for (const ChannelUnit& chunk : chunks_of_channels(file.layout)) {
      std::fill(begins.begin() + chunk.channels.begin + 1, begins.begin() + chunk.channels.end, false);
    }
  }
  cuts.row_unit = std::min(cuts.row_unit, cuts.rows);
  for (int64_t channel = 0; channel < channels.row(); ++channel) {
    if (begins[static_cast<size_t>(channel)]) {
      cuts.units.push_back({{channel, channel}, 0});
    }
    cuts.units.back().channels.end = channel + 1;
  }
  for (const ChannelUnit& chunk : chunks_of_channels(files.front().layout)) {
    const auto holds = [&](const ChannelUnit& unit) { return unit.channels.contains(chunk.channels.begin); };
    std::find_if(cuts.units.begin(), cuts.units.end(), holds)->planes += chunk.planes;
  }
  const auto add = [](std::vector<int64_t>& sources, Range stored) {
    for (int64_t channel = stored.begin; channel < stored.end; ++channel) {
      sources.push_back(channel);
    }
  };
  add(cuts.inputs, channels.taken());
  for (int64_t age = 1; age < channels.history; ++age) {
    add(cuts.inputs, channels.state());
  }
  cuts.inputs.resize(static_cast<size_t>(channels.inputs()), channels.row());
  add(cuts.targets, channels.predicted());
  return cuts;
}

std::vector<FieldShare> share_fields(const FieldCuts& cuts, bool reads_inputs, bool reads_targets, int64_t num_ranks) {
  std::vector<FieldShare> shares;
  if (cuts.row_unit == 0 || num_ranks == 1) {
    return shares;
  }
  const Partition bands((cuts.rows + cuts.row_unit - 1) / cuts.row_unit, num_ranks);
  std::vector<int64_t> costs;
  for (const ChannelUnit& unit : cuts.units) {
    costs.push_back(unit.planes * ((reads_inputs ? most_reads(cuts.inputs, unit.channels) : 0) +
                                   (reads_targets ? most_reads(cuts.targets, unit.channels) : 0)));
  }
  const std::vector<Range> parts = even_parts(costs, num_ranks);
  const int64_t all = std::accumulate(costs.begin(), costs.end(), int64_t{0});
  const int64_t most_rows = std::min(bands.largest() * cuts.row_unit, cuts.rows);
  const bool has_bands = bands.count() >= num_ranks || most_rows * all <= largest_cost(costs, parts) * cuts.rows;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    if (has_bands) {
      const Range band = bands.part(rank);
      shares.push_back(
          {.rows = {std::min(band.begin * cuts.row_unit, cuts.rows), std::min(band.end * cuts.row_unit, cuts.rows)}});
      continue;
    }
    const auto channel_at = [&](int64_t unit) {
      return unit < std::ssize(cuts.units) ? cuts.units[static_cast<size_t>(unit)].channels.begin
                                           : cuts.units.back().channels.end;
    };
    const Range part = parts[static_cast<size_t>(rank)];
    // The last rank, which was filled last, makes what is derived.
    const int64_t derived = rank + 1 == num_ranks ? 1 : 0;
    shares.push_back({.channels = {channel_at(part.begin), channel_at(part.end) + derived}});
  }
  return shares;
}

Range common_part(Range range, Range of) {
  const int64_t begin = std::max(range.begin, of.begin);
  return {begin, std::max(begin, std::min(range.end, of.end))};
}

std::vector<Range> runs_of_share(const std::vector<int64_t>& sources, Range channels) {
  std::vector<Range> runs;
  for (int64_t i = 0; i < std::ssize(sources); ++i) {
    if (!channels.contains(sources[static_cast<size_t>(i)])) {
      continue;
    }
    if (runs.empty() || runs.back().end != i) {
      runs.push_back({i, i});
    }
    runs.back().end = i + 1;
  }
  return runs;
}

}  // namespace vit_hybrid::data
