// What `vit_hybrid data inspect` tells of HDF5 files: layout, cost of training's reads, and the values by channel.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_description.h"
#include "data/tools/read_cost.h"
#include "data/tools/row_statistics.h"

namespace vit_hybrid::data {

struct InspectOptions {
  std::vector<std::string> inputs;  ///< files and folders
  int64_t sample = 16;              ///< rows of each dataset whose values are looked at; 0: all
  int64_t bands = 1;                ///< latitude bands that a sample is read in
};

/// Why reading the dataset is slower than it need be ("filter deflate"); empty if it is not.
std::string slow_because(const Hdf5Layout& layout, const ReadCost& cost);

/// All of the text of one dataset but its values: storage, dims, channels, attributes, cost of reading.
std::string describe_dataset(const Hdf5Description& dataset, int64_t bands);

/// A table of one line for each channel.
std::string statistics_table(const std::vector<ChannelMoments>& channels, const std::vector<std::string>& names);

/// Calls `print` on rank 0 with the text of one file after the other. Collective over `group`; errors are agreed.
void inspect_files(const comm::MpiGroup& group, const InspectOptions& options,
                   const std::function<void(const std::string&)>& print);

}  // namespace vit_hybrid::data
