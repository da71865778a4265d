// FieldOrder: which dims of a stored array are channels, rows and columns, and whether they lie as they are needed.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace vit_hybrid::data {

/// What a file tells of the dims of fields beside their extents.
struct FieldOrder {
  enum class Kind { kUnknown, kChannel, kLatitude, kLongitude };
  std::vector<int64_t> shape;      ///< with that of time
  std::array<Kind, 4> kinds = {};  ///< by the names or units of dimension scales and labels
  int64_t num_channel_names = 0;   ///< 0: none are given
  int64_t num_latitudes = 0;       ///< of a dataset of this name; 0: there is none
  int64_t num_longitudes = 0;      ///< likewise
};

/// Error(kBadData), with the way to transpose them, where fields have their channels last: where names or units say so,
/// else where there are as many names of channels, or latitudes and longitudes, as the dims of such fields have, else
/// where the last dim is at most a quarter of each of the two before it and nothing says that they lie right. `where`
/// names file and dataset. Pure.
void require_channels_first(const FieldOrder& order, const std::string& where);

/// The same where images, `shape` with that of their number, have their colours first. Pure.
void require_colours_last(const std::vector<int64_t>& shape, const std::string& where);

}  // namespace vit_hybrid::data
