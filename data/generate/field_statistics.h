// FieldStatistics: mean and deviation of generated fields, sample by sample, of several ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace vit_hybrid::data {

/// float32 tensors: means and stds [1, C, 1, 1], time_means [1, C, H, W].
struct StatisticsTensors {
  at::Tensor means;
  at::Tensor stds;
  at::Tensor time_means;
};

/// Moments of samples [channels, height, width], whose height x width values are the cells. What several objects hold
/// can be merged; the result depends on the order of additions and merges, but on nothing else.
class FieldStatistics {
 public:
  FieldStatistics(int64_t channels, int64_t height, int64_t width);

  void add(const float* sample);
  /// Adds what `other` holds: T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the sample variance",
  /// The American Statistician 37 (1983), equation (1.5).
  void merge(const FieldStatistics& other);

  int64_t num_samples() const { return num_samples_; }
  /// Mean over samples and cells.
  double mean(int64_t channel) const;
  /// Standard deviation over samples and cells (of the population: divided by their number).
  double deviation(int64_t channel) const;
  /// Mean over the samples at element `index` of [channels, cells].
  double time_mean(int64_t index) const;
  StatisticsTensors tensors() const;

  /// All of the state, to be sent to another rank, and its restoration there.
  std::vector<double> pack() const;
  void unpack(std::span<const double> packed);
  int64_t packed_size() const { return 1 + 2 * channels_ + channels_ * cells_; }

 private:
  /// The mean and the sum of squared deviations of `count` more values.
  void merge_channel(int64_t channel, double count, double mean, double squares);

  int64_t channels_;
  int64_t height_;
  int64_t width_;
  int64_t cells_;
  int64_t num_samples_ = 0;
  std::vector<double> means_;    // by channel
  std::vector<double> squares_;  // sums of squared deviations from the mean, by channel
  std::vector<double> sums_;     // over samples, by channel and cell
};

}  // namespace vit_hybrid::data
