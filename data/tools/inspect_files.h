// What HDF5 files and Zarr stores hold, and what they cost to read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_layout.h"
#include "data/reading/row_reader.h"
#include "data/tools/row_statistics.h"

namespace vit_hybrid::data {

struct InspectOptions {
  std::vector<std::string> inputs;  ///< files and folders
  int64_t sample = 16;              ///< rows of each dataset whose values are looked at
  int64_t bands = 1;                ///< latitude bands that a sample is read in
  bool all = false;                 ///< values of all rows instead
};

/// Of a part of one row.
struct ReadCost {
  int64_t bytes_wanted = 0;
  /// Bytes of values that must be read to have those: whole chunks where a filter lets nothing less be read.
  int64_t bytes_needed = 0;
  int64_t bytes_in_file = 0;  ///< the same as they are stored (compressed); equal to bytes_needed without filters
  int64_t num_reads = 0;      ///< places in the file, each of adjacent bytes

  double amplification() const {
    return bytes_wanted == 0 ? 1.0 : static_cast<double>(bytes_needed) / static_cast<double>(bytes_wanted);
  }
};

/// Of `box` of row `row`. Of storage whose chunks HDF5 does not tell of, `bytes_in_file` counts them whole and not
/// compressed; of virtual and compact storage nothing but what is wanted is known.
ReadCost read_cost(const ArrayLayout& layout, int64_t row, const RowBox& box);

/// Part `band` of `num_bands` of the rows of a field (n, channels, height, width): what one of several ranks reads.
RowBox latitude_band(const ArrayLayout& layout, int64_t band, int64_t num_bands);

/// Why reading the dataset is slower than it need be ("filter deflate"); empty if it is not.
std::string slow_because(const ArrayLayout& layout, const ReadCost& cost);

/// A table of one line for each channel.
std::string statistics_table(const std::vector<ChannelMoments>& channels, const std::vector<std::string>& names);

/// Calls `print` on rank 0 with the text of one file after the other and, behind those of a folder, what they are
/// together, or why training would refuse them. Collective over `group`; errors are agreed.
void inspect_files(const comm::MpiGroup& group, const InspectOptions& options,
                   const std::function<void(const std::string&)>& print);

}  // namespace vit_hybrid::data
