// The times along a dim from a dimension scale, also those behind its end. For data/hdf5_* only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_handle.h"

namespace vit_hybrid::data {

struct Hdf5Times {
  std::vector<long double> values;  ///< 64 bits of precision: integers and double precision exactly
  std::string why_not;              ///< where there are no values: the reason, "its values are no numbers"
};

/// The times `first` to `first + count - 1` of a scale of a dim of `num_times`; those from num_times on go on with the
/// spacing of all before, where that is one.
Hdf5Times hdf5_times(hid_t scale, int64_t num_times, int64_t first, int64_t count);

}  // namespace vit_hybrid::data
