// Normalization: statistics from .npy files, and the loop over a field; from states to increments and back.
#include "data/datasets/normalization.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <sstream>
#include <system_error>

#include "data/datasets/channel_search.h"
#include "data/datasets/field_catalogue.h"
#include "data/datasets/npy.h"
#include "data/datasets/year_files.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/instruction_sets.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

constexpr int64_t kMostListBytes = int64_t{1} << 20;  // of a text beside statistics

std::vector<double> read_statistic(const std::string& path, int64_t channels, const std::string& names,
                                   const std::string& units) {
  const auto found = statistics_rows(path, names, units);
  const int64_t total = found ? found->total : channels;
  const at::Tensor values = read_npy(path).to(at::kDouble);
  const std::vector<int64_t> shape = values.sizes().vec();
  if (shape != std::vector<int64_t>{1, total, 1, 1} && shape != std::vector<int64_t>{total}) {
    throw Error(ErrorClass::kBadData,
                str(path, " has the shape (", join(shape), "), needed is (1, ", total, ", 1, 1) or (", total, "): ",
                    found ? str(kStatisticsChannels, " beside it names ", total, " channels")
                          : str("the data have ", total, " channels")));
  }
  const auto* first = values.const_data_ptr<double>();
  std::vector<double> statistic(first, first + total);
  if (found) {
    std::vector<double> chosen;
    std::transform(found->rows.begin(), found->rows.end(), std::back_inserter(chosen),
                   [&](int64_t row) { return statistic[static_cast<size_t>(row)]; });
    return chosen;
  }
  return statistic;
}

// As float32, in which most fields are normalized: a deviation that rounds to 0 there would make every value infinite.
void check(const std::string& path, const std::vector<double>& values, float above, const char* allowed) {
  for (size_t c = 0; c < values.size(); ++c) {
    const auto value = static_cast<float>(values[c]);
    if (!std::isfinite(value) || !(value > above)) {
      throw Error(ErrorClass::kBadData, str(path, " holds ", values[c], " for channel ", c), allowed);
    }
  }
}

constexpr uint32_t kSign = 0x80000000u;
constexpr uint32_t kInfinity = 0x7f800000u;  // without its sign; all NaNs are above

// The largest of the normalized values' bits without their signs: kInfinity or more where one is not finite. Written so
// that it is compiled to few vector instructions: it runs on data in the cache, and takes time from reading.
template <class T, class Math, class Store>
inline __attribute__((always_inline)) uint32_t normalize_values(const T* from, int64_t count, Math mean, Math deviation,
                                                                const Store& store) {
  uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>((static_cast<Math>(from[i]) - mean) / deviation);
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    largest = std::max(largest, bits & ~kSign);
    store(i, value);
  }
  return largest;
}

template <class T, class Math>
inline __attribute__((always_inline)) uint32_t normalize_values(const T* from, float* to, int64_t count, Math mean,
                                                                Math deviation) {
  return normalize_values(from, count, mean, deviation, [to](int64_t i, float value) { to[i] = value; });
}

VH_VERSIONS uint32_t largest_normalized(const float* from, int64_t count, float mean, float deviation) {
  return normalize_values(from, count, mean, deviation, [](int64_t /*i*/, float /*value*/) {});
}

VH_VERSIONS uint32_t normalize_floats(const float* from, float* to, int64_t count, float mean, float deviation) {
  return normalize_values(from, to, count, mean, deviation);
}

VH_VERSIONS uint32_t normalize_doubles(const double* from, float* to, int64_t count, double mean, double deviation) {
  return normalize_values(from, to, count, mean, deviation);
}

uint32_t normalize_some(const float* from, float* to, int64_t count, double mean, double deviation) {
  return normalize_floats(from, to, count, static_cast<float>(mean), static_cast<float>(deviation));
}

uint32_t normalize_some(const double* from, float* to, int64_t count, double mean, double deviation) {
  return normalize_doubles(from, to, count, mean, deviation);
}

// 16-bit values, in float32.
template <class T>
uint32_t normalize_some(const T* from, float* to, int64_t count, double mean, double deviation) {
  return normalize_values(from, to, count, static_cast<float>(mean), static_cast<float>(deviation));
}

// Calls `largest(begin, end, channel)` for the parts of a run in one channel each, until one of its values is not
// finite: of which the first is the first i for which `value(i)` is not.
template <class Largest, class Value>
int64_t find_not_finite(Range run, int64_t channel_values, const Largest& largest, const Value& value) {
  for (int64_t begin = run.begin; begin < run.end;) {
    const int64_t channel = begin / channel_values;
    const int64_t end = std::min((channel + 1) * channel_values, run.end);
    if (largest(begin, end, static_cast<size_t>(channel)) >= kInfinity) {
      while (std::isfinite(value(begin, static_cast<size_t>(channel)))) {
        ++begin;
      }
      return begin;
    }
    begin = end;
  }
  return -1;
}

template <class T>
int64_t normalize(const T* from, Range run, int64_t channel_values, const Normalization& normalization, float* to) {
  return find_not_finite(
      run, channel_values,
      [&](int64_t begin, int64_t end, size_t channel) {
        return normalize_some(from + begin, to + begin, end - begin, normalization.mean[channel],
                              normalization.std[channel]);
      },
      [&](int64_t i, size_t /*channel*/) { return to[i]; });
}

}  // namespace

Normalization Normalization::identity(int64_t channels) {
  const auto num = static_cast<size_t>(channels);
  return {std::vector<double>(num, 0.0), std::vector<double>(num, 1.0)};
}

std::optional<StatisticsRows> statistics_rows(const std::string& path, const std::string& names,
                                              const std::string& units) {
  const std::string list = (std::filesystem::path(path).parent_path() / kStatisticsChannels).string();
  std::error_code ignored;
  if (names.empty() || !std::filesystem::exists(list, ignored)) {
    return std::nullopt;
  }
  std::istringstream lines(read_regular_file(list, kMostListBytes));
  std::string text, told;
  std::getline(lines, text);
  std::getline(lines, told);
  for (std::string* const line : {&text, &told}) {
    line->erase(line->find_last_not_of("\r ") + 1);
  }
  const std::vector<std::string> known = split_channels(text);
  const std::vector<std::string> known_units =
      told.empty() ? std::vector<std::string>(known.size()) : split_channels(told);
  if (known_units.size() != known.size()) {
    throw Error(ErrorClass::kBadData,
                str(list, " has ", counted(known.size(), "channel"), " and ", counted(known_units.size(), "unit")),
                "needed is a unit for each channel, with commas between them; nothing where one is not known");
  }
  std::vector<std::string> found_units;
  StatisticsRows found{std::ssize(known), {}};
  for (const std::string& name : split_channels(names)) {
    const auto place = std::find_if(known.begin(), known.end(), [&](const std::string& other) {
      return canonical_channel(other) == canonical_channel(name);
    });
    if (place == known.end()) {
      throw Error(ErrorClass::kBadData,
                  str(path, " is of the channels ", shown(text), " (", kStatisticsChannels, " beside it), not of '",
                      shown(name), "'"),
                  "make statistics of these data: `vit_hybrid data stats`");
    }
    found.rows.push_back(place - known.begin());
    found_units.push_back(known_units[static_cast<size_t>(found.rows.back())]);
  }
  if (const auto other = other_unit(join(found_units, ","), units)) {
    throw Error(ErrorClass::kBadData,
                str(path, " is of channel '", split_channels(names)[other->channel], "' in ", shown(other->first), " (",
                    kStatisticsChannels, " beside it), but the data have it in ", shown(other->second)),
                "make statistics of these data: `vit_hybrid data stats`");
  }
  return found;
}

std::string increment_lead_text(const Lead& lead) {
  return lead.hours > 0.0 ? str(number_text(lead.hours, 9), " hours\n") : str(lead.rows, " rows\n");
}

void require_increment_lead(const std::string& folder, const Lead& lead) {
  const std::string path = (std::filesystem::path(folder) / kIncrementLead).string();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    if (lead.rows == 0 && lead.hours == 0.0) {
      return;
    }
    std::string known = increment_lead_text(lead);
    known.pop_back();
    log_warning(str("it is not known over which lead the increments of ", folder, " are, taken for the data's, ",
                    lead_text(lead), ": where that is right, `echo '", known, "' >", path, "` records it"));
    return;
  }
  std::string text = read_regular_file(path, kMostListBytes);
  text.erase(text.find_last_not_of("\n\r ") + 1);
  std::istringstream words(text);
  double number = 0.0;
  std::string unit, more;
  if (!(words >> number >> unit) || words >> more || !(number > 0.0) || (unit != "hours" && unit != "rows")) {
    throw Error(ErrorClass::kBadData, str(path, " holds '", shown(text), "'"), "needed is a lead: 24 hours");
  }
  const double given = unit == "hours" ? lead.hours : static_cast<double>(lead.rows);
  constexpr double kSame = 0.01;  // of it
  if (given > 0.0 && std::abs(given - number) > kSame * number) {
    throw Error(ErrorClass::kBadData,
                str("the statistics of increments in ", folder, " are over ", shown(text), " (", kIncrementLead,
                    "), the pairs of the data are ", lead_text(lead), " apart"),
                "make those of this lead: `vit_hybrid data stats --increments` with the same --dt or --dt-hours");
  }
}

Normalization Normalization::read(const comm::MpiGroup& group, const std::string& means, const std::string& stds,
                                  int64_t channels, const std::string& names, const std::string& units) {
  Normalization result = identity(channels);
  comm::agreed_on_rank_0(group, [&] {
    result = {read_statistic(means, channels, names, units), read_statistic(stds, channels, names, units)};
    check(means, result.mean, -std::numeric_limits<float>::infinity(), "a mean is finite");
    check(stds, result.std, 0.0f, "a standard deviation is finite and above 0");
  });
  const auto bytes = static_cast<int64_t>(sizeof(double)) * channels;
  group.broadcast(result.mean.data(), bytes, 0);
  group.broadcast(result.std.data(), bytes, 0);
  return result;
}

int64_t normalize_field(const at::Tensor& field, const Normalization& normalization, const at::Tensor& to) {
  VH_ASSERT(
      field.is_contiguous() && to.is_contiguous() && field.sizes() == to.sizes() && to.scalar_type() == at::kFloat,
      "field and its normalized values");
  VH_ASSERT(static_cast<int64_t>(normalization.mean.size()) == field.size(0), "one mean for each channel");
  const int64_t channels = field.size(0);
  const int64_t channel_values = channels == 0 ? 0 : field.numel() / channels;
  return normalize_run({field.const_data_ptr(), field.scalar_type()}, {0, field.numel()}, channel_values, normalization,
                       to.data_ptr<float>());
}

int64_t normalize_run(FieldValues field, Range run, int64_t channel_values, const Normalization& normalization,
                      float* to) {
  const auto run_of = [&](const auto* values) { return normalize(values, run, channel_values, normalization, to); };
  switch (field.type) {
    case at::kFloat:
      return run_of(static_cast<const float*>(field.values));
    case at::kDouble:
      return run_of(static_cast<const double*>(field.values));
    case at::kHalf:
      return run_of(static_cast<const c10::Half*>(field.values));
    case at::kBFloat16:
      return run_of(static_cast<const c10::BFloat16*>(field.values));
    default:
      break;
  }
  VH_ASSERT(false, str("values of type ", c10::toString(field.type)));
}

int64_t first_not_finite(const float* field, Range run, int64_t channel_values, const Normalization& normalization) {
  const auto mean = [&](size_t channel) { return static_cast<float>(normalization.mean[channel]); };
  const auto std = [&](size_t channel) { return static_cast<float>(normalization.std[channel]); };
  return find_not_finite(
      run, channel_values,
      [&](int64_t begin, int64_t end, size_t channel) {
        return largest_normalized(field + begin, end - begin, mean(channel), std(channel));
      },
      [&](int64_t i, size_t channel) { return (field[i] - mean(channel)) / std(channel); });
}

IncrementTarget::IncrementTarget(const Normalization& increments, const Normalization& states) {
  VH_ASSERT(increments.mean.size() == states.mean.size(), "increments and states of the same channels");
  const at::Tensor scale = at::tensor(states.std, at::kDouble).reshape({-1, 1, 1});
  mean_ = at::tensor(increments.mean, at::kDouble).reshape({-1, 1, 1}) / scale;
  std_ = at::tensor(increments.std, at::kDouble).reshape({-1, 1, 1}) / scale;
}

IncrementTarget IncrementTarget::to(c10::Device device, at::ScalarType type) const {
  IncrementTarget moved;
  if (*this) {
    moved.mean_ = mean_.to(device, type);
    moved.std_ = std_.to(device, type);
  }
  return moved;
}

at::Tensor IncrementTarget::target(const at::Tensor& next, const at::Tensor& present) const {
  const int64_t channels = mean_.size(0);
  at::Tensor out = next.clone();
  out.narrow(1, 0, channels).sub_(present.narrow(1, 0, channels)).sub_(mean_).div_(std_);
  return out;
}

at::Tensor IncrementTarget::state(const at::Tensor& prediction, const at::Tensor& present) const {
  const int64_t channels = mean_.size(0);
  at::Tensor out = prediction.clone();
  out.narrow(1, 0, channels).mul_(std_).add_(mean_).add_(present.narrow(1, 0, channels));
  return out;
}

}  // namespace vit_hybrid::data
