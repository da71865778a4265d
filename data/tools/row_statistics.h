// Statistics by channel over rows of a dataset in files, computed by all ranks together.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "data/reading/row_source.h"
#include "data/tools/channel_moments.h"

namespace vit_hybrid::data {

/// Rows of all files in one numbering; `count` of the `total` ones, spread evenly.
struct RowSelection {
  int64_t total = 0;
  int64_t count = 0;

  /// At most `wanted` rows of the files of `source`; 0: all.
  static RowSelection of(const RowSource& source, int64_t wanted);
  /// Number of selected row `i`.
  int64_t row(int64_t i) const { return static_cast<int64_t>((static_cast<double>(i) + 0.5) * step()); }

 private:
  double step() const { return static_cast<double>(total) / static_cast<double>(count); }
};

enum class MissingValues {
  kCount,   ///< left out of all sums
  kRefuse,  ///< Error(kBadData) naming file, row, channel and place of the first one a rank meets
};

enum class TimeMeans { kNo, kYes };

struct StatisticsRequest {
  MissingValues missing = MissingValues::kCount;
  TimeMeans time_means = TimeMeans::kNo;
};

struct RowStatistics {
  std::vector<ChannelMoments> channels;
  at::Tensor time_means;  ///< float64, of a row's shape: over the finite values of each element (NaN without any)
};

/// The rows of all files of `source` have one shape. The moments do not depend on the number of ranks, bit for bit, and
/// the time means to the rounding of double. Collective over `group`, that of `source`; errors are agreed.
RowStatistics row_statistics(const comm::MpiGroup& group, const RowSource& source, const RowSelection& rows,
                             const StatisticsRequest& request);

}  // namespace vit_hybrid::data
