// Moments of a plane in two passes, merged.
#include "data/tools/channel_moments.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "data/reading/box_runs.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr size_t kLanes = 8;  // partial sums, so that the loops are compiled to vectors and errors grow more slowly
constexpr int64_t kNumColors = 3;

// Sum over the values of function(value), of which `finite_only` says whether others count as 0.
template <class T, class Function>
double sum_finite(const T* values, int64_t count, const Function& function) {
  std::array<double, kLanes> sums{};
  const auto add = [&](double& sum, T value) {
    const auto x = static_cast<double>(value);
    sum += std::isfinite(x) ? function(x) : 0.0;
  };
  const int64_t whole = count - count % static_cast<int64_t>(kLanes);
  for (int64_t i = 0; i < whole; i += static_cast<int64_t>(kLanes)) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      add(sums[lane], values[i + static_cast<int64_t>(lane)]);
    }
  }
  for (int64_t i = whole; i < count; ++i) {
    add(sums[0], values[i]);
  }
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

template <class T>
ChannelMoments moments_of(const T* values, int64_t count) {
  ChannelMoments moments;
  for (int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(values[i]);
    moments.num_nan += std::isnan(x) ? 1 : 0;
    moments.num_infinite += std::isinf(x) ? 1 : 0;
    moments.min = x < moments.min && std::isfinite(x) ? x : moments.min;
    moments.max = x > moments.max && std::isfinite(x) ? x : moments.max;
  }
  moments.count = count - moments.num_missing();
  if (moments.count > 0) {
    const auto number = static_cast<double>(moments.count);
    moments.mean = sum_finite(values, count, [](double x) { return x; }) / number;
    const double mean = moments.mean;
    moments.squares = sum_finite(values, count, [mean](double x) { return (x - mean) * (x - mean); });
  }
  return moments;
}

template <class T>
void add_planes(const at::Tensor& planes, std::vector<ChannelMoments>& moments) {
  const int64_t count = planes.size(1);
  const auto* values = planes.const_data_ptr<T>();
  for (auto& channel : moments) {
    channel.merge(moments_of(values, count));
    values += count;
  }
}

}  // namespace

void ChannelMoments::merge(const ChannelMoments& other) {
  num_nan += other.num_nan;
  num_infinite += other.num_infinite;
  if (other.count == 0) {
    return;
  }
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  const auto before = static_cast<double>(count);
  const auto more = static_cast<double>(other.count);
  const double difference = other.mean - mean;
  mean += difference * more / (before + more);
  squares += other.squares + difference * difference * before * more / (before + more);
  count += other.count;
}

double ChannelMoments::deviation() const {
  return std::sqrt(squares / static_cast<double>(count));
}

void ChannelMoments::pack(double* to) const {
  const std::array<double, kPacked> numbers{static_cast<double>(count),
                                            static_cast<double>(num_nan),
                                            static_cast<double>(num_infinite),
                                            min,
                                            max,
                                            mean,
                                            squares};
  std::copy(numbers.begin(), numbers.end(), to);
}

ChannelMoments ChannelMoments::unpack(const double* from) {
  return {static_cast<int64_t>(from[0]),
          static_cast<int64_t>(from[1]),
          static_cast<int64_t>(from[2]),
          from[3],
          from[4],
          from[5],
          from[6]};
}

ChannelPlaces channel_places(std::span<const int64_t> shape, at::ScalarType type) {
  const int64_t row = shape.empty() ? 1 : num_elements(shape.subspan(1));
  if (type == at::kByte && shape.size() == 4 && shape.back() == kNumColors) {
    return {row / kNumColors, kNumColors, 1};
  }
  if (shape.size() >= 3 && shape[1] > 0) {
    return {1, shape[1], row / shape[1]};
  }
  return {1, 1, row};
}

void add_row(const at::Tensor& row, const ChannelPlaces& places, std::vector<ChannelMoments>& moments) {
  VH_ASSERT(row.is_contiguous() && std::ssize(moments) == places.channels &&
                row.numel() == places.outer * places.channels * places.inner,
            str("a row of ", row.numel(), " values in ", places.channels, " channels"));
  const at::Tensor planes = row.reshape({places.outer, places.channels, places.inner})
                                .transpose(0, 1)
                                .reshape({places.channels, places.outer * places.inner})
                                .contiguous();
  if (planes.scalar_type() == at::kFloat) {
    add_planes<float>(planes, moments);
  } else {
    add_planes<double>(planes.to(at::kDouble), moments);
  }
}

}  // namespace vit_hybrid::data
