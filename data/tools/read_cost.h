// ReadCost: what a file's layout makes of the reads that training asks for.
#pragma once

#include <cstdint>

#include "data/hdf5/hdf5_layout.h"
#include "data/reading/row_reader.h"

namespace vit_hybrid::data {

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
ReadCost read_cost(const Hdf5Layout& layout, int64_t row, const RowBox& box);

/// Part `band` of `num_bands` of the rows of a field (n, channels, height, width): what one of several ranks reads.
RowBox latitude_band(const Hdf5Layout& layout, int64_t band, int64_t num_bands);

}  // namespace vit_hybrid::data
