// Means and deviations by channel, from moments that are added up, and their files.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "data/datasets/year_files.h"
#include "data/reading/row_source.h"

namespace vit_hybrid::data {

/// Moments of the finite values; the others are counted.
struct ChannelMoments {
  int64_t count = 0;
  int64_t num_nan = 0;
  int64_t num_infinite = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double mean = 0.0;
  double squares = 0.0;  ///< sum of squared deviations from the mean

  /// T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the sample variance", The American Statistician
  /// 37 (1983), equation (1.5).
  void merge(const ChannelMoments& other);
  /// Of the population: divided by the number of values. NaN without any.
  double deviation() const;
  int64_t num_missing() const { return num_nan + num_infinite; }

  /// Numbers in pack(): all of the state, to be sent to another rank.
  static constexpr int64_t kPacked = 7;
  void pack(double* to) const;
  static ChannelMoments unpack(const double* from);
};

/// Where the channels lie in a row of a dataset: the row is [outer, channels, inner].
struct ChannelPlaces {
  int64_t outer = 1;
  int64_t channels = 1;
  int64_t inner = 1;
};

/// Of a dataset of this shape: bytes (n, height, width, 3) have their channels last, (n, channels, ...) of at least
/// three dims second, others are one channel.
ChannelPlaces channel_places(std::span<const int64_t> shape, at::ScalarType type);

/// Adds the values of a contiguous host tensor of one row, in double.
void add_row(const at::Tensor& row, const ChannelPlaces& places, std::vector<ChannelMoments>& moments);

/// Adds the finite values of `row` to `sums`, and 1 to the `counts` of these elements (float64, of the row's shape).
void add_finite(const at::Tensor& row, const at::Tensor& sums, const at::Tensor& counts);

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
  /// Where it is set, statistics are not of rows but of the differences of these pairs, target minus input, by the
  /// numbers of the selection.
  const TimePairs* pairs = nullptr;
};

struct RowStatistics {
  std::vector<ChannelMoments> channels;
  at::Tensor time_means;  ///< float64, of a row's shape: over the finite values of each element (NaN without any)
};

/// Error(kBadData) unless all are floating-point fields of one type, number of channels, and points.
void require_alike(const std::vector<RowFile>& files);

/// The rows of all files of `source` have one shape. The moments do not depend on the number of ranks, bit for bit, and
/// the time means to the rounding of double. Collective over `group`, that of `source`; errors are agreed.
RowStatistics row_statistics(const comm::MpiGroup& group, const RowSource& source, const RowSelection& rows,
                             const StatisticsRequest& request);

struct WriteStatsOptions {
  std::vector<std::string> inputs;  ///< folder of the year files; one
  std::string out;                  ///< folder to be made
  FieldQuery fields;
  bool time_means = false;        ///< also time_means.npy
  bool increments = false;        ///< also time_diff_means.npy and time_diff_stds.npy
  Lead lead = {};                 ///< of the increments
  bool climatology = false;       ///< also climatology.nc
  int64_t climatology_days = 61;  ///< ClimatologyOptions::window_days
  bool skip_missing = false;      ///< leave NaN and infinities out instead of refusing them
  bool overwrite = false;         ///< replace such files
};

struct WrittenStats {
  std::vector<ChannelMoments> channels;
  std::vector<ChannelMoments> increments;  ///< empty where none were asked for
  Lead lead;                               ///< of the increments
  std::string climatology;                 ///< Climatology::text(); empty where none was asked for
  std::vector<std::string> channel_names;
  int64_t num_samples = 0;
};

/// Writes OUT/global_means.npy and OUT/global_stds.npy, float32 (1, C, 1, 1), over all times of all files, and if asked
/// OUT/time_means.npy (1, C, H, W), and OUT/time_diff_means.npy and OUT/time_diff_stds.npy, those of x(t + lead) - x(t)
/// over the pairs of the files, none across a gap in their times (makani's names), and OUT/climatology.nc
/// (Climatology); and OUT/channels.txt with the names that the data have (normalization.h). Collective over `group`;
/// errors are agreed: Error(kMissingInput), Error(kBadData) for values that are not finite, channels that are constant
/// or without a value, and files that differ, Error(kCannotCreate), also for an optional file of before that would
/// stay. Whenever the program is killed, what is in OUT is not of two data sets: old files are removed before new ones
/// have their names.
WrittenStats write_stats(const comm::MpiGroup& group, const WriteStatsOptions& options);

}  // namespace vit_hybrid::data
