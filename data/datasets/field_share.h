// FieldShare: what of each state one of several ranks reads, a band of latitudes or some of the channels, so that no
// chunk is read or decoded by two of them.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "src/base/partition.h"

namespace vit_hybrid::data {

struct RowFile;
struct SampleChannels;

/// Rows of latitude, and channels of a stored state; the channel behind the stored ones stands for the inputs that are
/// derived (DerivedInputs), which one rank makes. What is larger than the fields means all of it.
struct FieldShare {
  Range rows = {0, std::numeric_limits<int64_t>::max()};
  Range channels = {0, std::numeric_limits<int64_t>::max()};
  bool operator==(const FieldShare&) const = default;
};

/// Channels of a stored state that lie in the same chunks: a cut between them would have these decoded twice.
struct ChannelUnit {
  Range channels;
  int64_t planes = 0;  ///< that are decoded for them, also those of channels that nobody asked for
  bool operator==(const ChannelUnit&) const = default;
};

/// How the reading of fields [channels, height, width] can be cut.
struct FieldCuts {
  int64_t row_unit = 0;  ///< bands begin at multiples of this many rows; 0: samples are read whole
  int64_t rows = 0;
  std::vector<ChannelUnit> units = {};  ///< of all channels of a stored state, in their order
  /// Of each channel of the inputs and of the targets the one of a stored state that it is, as of FieldShare.
  std::vector<int64_t> inputs = {};
  std::vector<int64_t> targets = {};
};

/// Those of the fields of the files, all of one shape, of which samples take and give `channels`. The same on all ranks
/// that have the same layouts. Pure.
FieldCuts field_cuts(std::span<const RowFile> files, const SampleChannels& channels);

/// A share for each of the ranks, maybe of no rows or channels; none where samples are read whole, or by one rank.
/// Bands where each rank has a unit of rows; else bands or channels, whichever leaves less to the rank that decodes
/// most for the parts that are read. Pure.
std::vector<FieldShare> share_fields(const FieldCuts& cuts, bool reads_inputs, bool reads_targets, int64_t num_ranks);

/// The part of `range` in `of`, empty where there is none.
Range common_part(Range range, Range of);

/// The channels of inputs or targets, made of the stored ones `sources`, that a rank with these channels reads: runs in
/// their order.
std::vector<Range> runs_of_share(const std::vector<int64_t>& sources, Range channels);

}  // namespace vit_hybrid::data
