// A year's steps and samples, and mean and deviation of samples that come one by one.
#include "data/generate/weather_year.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "data/generate/planet.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/random.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {
size_t at(int64_t index) {
  return static_cast<size_t>(index);
}
}  // namespace

FieldStatistics::FieldStatistics(int64_t channels, int64_t cells)
    : channels_(channels),
      cells_(cells),
      means_(at(channels), 0.0),
      squares_(at(channels), 0.0),
      sums_(at(channels * cells), 0.0) {}

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

namespace {

constexpr double kSecondsPerHour = 3600.0;
constexpr double kSpinUpHours = 30.0 * 24.0;

int64_t rounded_up(double value) {
  return static_cast<int64_t>(std::ceil(value));
}

RandomStream year_stream(uint64_t seed, int64_t year) {
  return {seed, Purpose::kSyntheticData, name_key("weather"), static_cast<uint64_t>(year)};
}

}  // namespace

int64_t spin_up_samples(double sample_interval_hours) {
  return rounded_up(kSpinUpHours / sample_interval_hours);
}

WeatherYear::WeatherYear(const WeatherYearOptions& options, int64_t year)
    : year_(year),
      channels_(options.channels),
      model_(planet_plane(options.height, options.width), channels_.num_tracers()),
      driving_(model_.grid(), planet_driving(model_.grid(), channels_.num_tracers()), channels_.num_tracers()),
      state_(planet_initial_state(model_.grid(), driving_.options(), year_stream(options.seed, year),
                                  channels_.num_tracers())) {
  const double interval = options.sample_interval_hours * kSecondsPerHour;
  const double longest = std::min(model_.stable_time_step(), driving_.stable_time_step());
  steps_per_sample_ = rounded_up(interval / longest);
  time_step_ = interval / static_cast<double>(steps_per_sample_);
}

void WeatherYear::advance() {
  for (int64_t step = 0; step < steps_per_sample_; ++step) {
    model_.step(state_, time_step_);
    driving_.apply(state_, time_step_);
  }
  for (const PeriodicField& field : state_.fields) {
    if (!std::isfinite(field.sum())) {
      throw Error(ErrorClass::kInternal,
                  str("the generated weather of year ", year_, " blew up (time step ", time_step_, " s)"),
                  "this is a defect of the generator, please report it with your options");
    }
  }
}

WeatherYearOptions year_options(const GenerateWeatherOptions& options) {
  return {options.channels, options.height, options.width, options.seed, options.sample_interval_hours};
}

FieldStatistics make_statistics(const GenerateWeatherOptions& options) {
  return {options.channels, options.height * options.width};
}

void next_samples(WeatherYear& year, FieldStatistics& statistics, const at::Tensor& block) {
  auto* to = block.mutable_data_ptr<float>();
  for (int64_t i = 0; i < block.size(0); ++i, to += block.stride(0)) {
    year.advance();
    year.sample(to);
    statistics.add(to);
  }
}

StatisticsTensors statistics_tensors(const FieldStatistics& statistics, const GenerateWeatherOptions& options) {
  const int64_t channels = options.channels;
  StatisticsTensors tensors{at::empty({1, channels, 1, 1}), at::empty({1, channels, 1, 1}),
                            at::empty({1, channels, options.height, options.width})};
  auto* means = tensors.means.mutable_data_ptr<float>();
  auto* stds = tensors.stds.mutable_data_ptr<float>();
  auto* time_means = tensors.time_means.mutable_data_ptr<float>();
  for (int64_t channel = 0; channel < channels; ++channel) {
    means[channel] = static_cast<float>(statistics.mean(channel));
    stds[channel] = static_cast<float>(statistics.deviation(channel));
  }
  for (int64_t i = 0; i < tensors.time_means.numel(); ++i) {
    time_means[i] = static_cast<float>(statistics.time_mean(i));
  }
  return tensors;
}

void broadcast_pieces(const comm::MpiGroup& group, void* data, int64_t bytes, int root) {
  constexpr int64_t kPiece = int64_t{64} << 20;
  for (int64_t first = 0; first < bytes; first += kPiece) {
    group.broadcast(static_cast<char*>(data) + first, std::min(kPiece, bytes - first), root);
  }
}

}  // namespace vit_hybrid::data
