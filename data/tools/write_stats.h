// The files of means and deviations that training normalizes by, from a folder of weather data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tools/row_statistics.h"

namespace vit_hybrid::data {

struct WriteStatsOptions {
  std::vector<std::string> inputs;  ///< folder of the year files; one
  std::string out;                  ///< folder to be made
  std::string dataset = "fields";   ///< (time, channel, height, width)
  bool time_means = false;          ///< also time_means.npy
  bool skip_missing = false;        ///< leave NaN and infinities out instead of refusing them
  bool overwrite = false;           ///< replace such files
};

struct WrittenStats {
  std::vector<ChannelMoments> channels;
  std::vector<std::string> channel_names;
  int64_t num_samples = 0;
};

/// Writes OUT/global_means.npy and OUT/global_stds.npy, float32 (1, C, 1, 1), over all times of all files, and if asked
/// OUT/time_means.npy (1, C, H, W). Collective over `group`; errors are agreed: Error(kMissingInput), Error(kBadData)
/// for values that are not finite, channels that are constant or without a value, and files that differ,
/// Error(kCannotCreate), also for an OUT/time_means.npy of before that would stay. Whenever the program is killed, what
/// is in OUT is not of two data sets: old files are removed before new ones have their names.
WrittenStats write_stats(const comm::MpiGroup& group, const WriteStatsOptions& options);

}  // namespace vit_hybrid::data
