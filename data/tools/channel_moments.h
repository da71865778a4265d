// ChannelMoments: what is in the values of one channel: their number, extremes, mean and deviation, and what is
// missing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

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

}  // namespace vit_hybrid::data
