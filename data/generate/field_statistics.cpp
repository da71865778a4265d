// Means and sums of squared deviations, merged.
#include "data/generate/field_statistics.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {
size_t at(int64_t index) {
  return static_cast<size_t>(index);
}
}  // namespace

FieldStatistics::FieldStatistics(int64_t channels, int64_t height, int64_t width)
    : channels_(channels),
      height_(height),
      width_(width),
      cells_(height * width),
      means_(at(channels), 0.0),
      squares_(at(channels), 0.0),
      sums_(at(channels * cells_), 0.0) {}

void FieldStatistics::merge_channel(int64_t channel, double count, double mean, double squares) {
  const double before = static_cast<double>(num_samples_ * cells_);
  const double difference = mean - means_[at(channel)];
  means_[at(channel)] += difference * count / (before + count);
  squares_[at(channel)] += squares + difference * difference * before * count / (before + count);
}

void FieldStatistics::add(const float* sample) {
  const double count = static_cast<double>(cells_);
  for (int64_t channel = 0; channel < channels_; ++channel) {
    const float* values = sample + channel * cells_;
    double* sums = sums_.data() + channel * cells_;
    double sum = 0.0;
    for (int64_t i = 0; i < cells_; ++i) {
      sum += values[i];
      sums[i] += values[i];
    }
    const double mean = sum / count;
    double squares = 0.0;
    for (int64_t i = 0; i < cells_; ++i) {
      squares += (values[i] - mean) * (values[i] - mean);
    }
    merge_channel(channel, count, mean, squares);
  }
  ++num_samples_;
}

void FieldStatistics::merge(const FieldStatistics& other) {
  VH_ASSERT(other.channels_ == channels_ && other.cells_ == cells_,
            str("statistics of ", other.channels_, " x ", other.cells_));
  if (other.num_samples_ == 0) return;
  const double count = static_cast<double>(other.num_samples_ * cells_);
  for (int64_t channel = 0; channel < channels_; ++channel) {
    merge_channel(channel, count, other.means_[at(channel)], other.squares_[at(channel)]);
  }
  for (size_t i = 0; i < sums_.size(); ++i) {
    sums_[i] += other.sums_[i];
  }
  num_samples_ += other.num_samples_;
}

double FieldStatistics::mean(int64_t channel) const {
  return means_[at(channel)];
}

double FieldStatistics::deviation(int64_t channel) const {
  return std::sqrt(squares_[at(channel)] / static_cast<double>(num_samples_ * cells_));
}

double FieldStatistics::time_mean(int64_t index) const {
  return sums_[at(index)] / static_cast<double>(num_samples_);
}

std::vector<double> FieldStatistics::pack() const {
  std::vector<double> packed{static_cast<double>(num_samples_)};
  for (const auto* part : {&means_, &squares_, &sums_}) {
    packed.insert(packed.end(), part->begin(), part->end());
  }
  return packed;
}

void FieldStatistics::unpack(std::span<const double> packed) {
  VH_ASSERT(std::ssize(packed) == packed_size(), str("packed statistics of ", packed.size(), " numbers"));
  num_samples_ = static_cast<int64_t>(packed.front());
  auto from = packed.begin() + 1;
  for (auto* part : {&means_, &squares_, &sums_}) {
    std::copy_n(from, part->size(), part->begin());
    from += static_cast<std::ptrdiff_t>(part->size());
  }
}

StatisticsTensors FieldStatistics::tensors() const {
  StatisticsTensors tensors{at::empty({1, channels_, 1, 1}), at::empty({1, channels_, 1, 1}),
                            at::empty({1, channels_, height_, width_})};
  auto* means = tensors.means.mutable_data_ptr<float>();
  auto* stds = tensors.stds.mutable_data_ptr<float>();
  auto* time_means = tensors.time_means.mutable_data_ptr<float>();
  for (int64_t channel = 0; channel < channels_; ++channel) {
    means[channel] = static_cast<float>(mean(channel));
    stds[channel] = static_cast<float>(deviation(channel));
  }
  for (int64_t i = 0; i < tensors.time_means.numel(); ++i) {
    time_means[i] = static_cast<float>(time_mean(i));
  }
  return tensors;
}

}  // namespace vit_hybrid::data
