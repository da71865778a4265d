// Names and checksums of attributes and tensors; the model options through the table that also reads the command line.
#include "src/checkpoint/format.h"

#include <ATen/Parallel.h>
#include <c10/core/ScalarType.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "data/datasets/channel_search.h"
#include "data/datasets/class_names.h"
#include "src/base/error.h"
#include "src/base/instruction_sets.h"
#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/config/model_options.h"

namespace vit_hybrid::train {

namespace {

using SortedJson = nlohmann::json;

constexpr double kSameLead = 0.01;       // of the hours
constexpr double kSameStatistic = 1e-5;  // in standard deviations

// "3 (t850)"
std::string channel_text(const TrainingData& data, size_t channel) {
  const auto names = data::split_names(data.channels);
  return channel < names.size() ? str(channel, " (", shown(names[channel]), ")") : str(channel);
}

bool has_moved(double mean, double std, double other_mean, double other_std) {
  return std::abs(mean - other_mean) + std::abs(std - other_std) > kSameStatistic * std;
}

// Calls `field(name, member)` for what other programs' files keep.
template <class Data, class Field>
void for_each_kept_field(Data& data, const Field& field) {
  field("channels", data.channels);
  field("units", data.units);
  field("class_names", data.class_names);
  field("means", data.means);
  field("stds", data.stds);
  field("latitudes", data.grid.latitudes);
  field("longitudes", data.grid.longitudes);
  field("lead_rows", data.lead.rows);
  field("lead_hours", data.lead.hours);
  field("roles", data.roles);
  field("increment_means", data.increment_means);
  field("increment_stds", data.increment_stds);
}

bool is_unknown(const auto& value) {
  if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(value)>>) {
    return value == 0;
  } else {
    return value.empty();
  }
}

}  // namespace

std::optional<data::Normalization> normalization_of(const TrainingData& data) {
  return data.means.empty() ? std::nullopt : std::optional(data::Normalization{data.means, data.stds});
}

std::string channels_difference(const TrainingData& trained, const std::string& given) {
  if (trained.channels.empty() || given.empty() || trained.channels == given) {
    return {};
  }
  return str("the data have the channels ", shown(given), ", the model was trained on ", shown(trained.channels));
}

std::string units_difference(const TrainingData& trained, const std::string& given) {
  const auto other = data::other_unit(trained.units, given);
  return other ? str("the data have channel ", channel_text(trained, other->channel), " in ", shown(other->second),
                     ", the model was trained on it in ", shown(other->first))
               : "";
}

std::string classes_difference(const TrainingData& trained, const std::string& given) {
  return data::class_difference(given, "the data", trained.class_names, "the checkpoint");
}

std::string lead_difference(const TrainingData& trained, const data::Lead& given) {
  const bool in_hours = trained.lead.hours > 0.0 && given.hours > 0.0;
  const bool is_same = in_hours ? std::abs(given.hours - trained.lead.hours) <= kSameLead * trained.lead.hours
                                : given.rows == trained.lead.rows;
  if (trained.lead.rows == 0 || given.rows == 0 || is_same) {
    return {};
  }
  return str("the data's pairs are ", data::lead_text(given), " apart, those of the model's training ",
             data::lead_text(trained.lead), " (--dt, --dt-hours)");
}

std::string roles_difference(const TrainingData& trained, const TrainingData& given) {
  const auto text = [](const TrainingData& data) {
    return str(data.roles.empty() ? "states alone in its input and output" : shown(data.roles),
               data.increment_stds.empty() ? "" : ", increments for a target");
  };
  return text(trained) == text(given)
             ? ""
             : str("the model is to have ", text(given), ", it was trained with ", text(trained));
}

std::string grid_difference(const TrainingData& trained, const data::Grid& given) {
  if (data::same_grid(trained.grid, given)) {
    return {};
  }
  return str("the data have ", data::grid_text(given), ", the model was trained on ", data::grid_text(trained.grid));
}

std::string doubt_of_rows(const TrainingData& trained, const data::Grid& given) {
  const std::vector<double>& rows = given.latitudes;
  if (!trained.grid.latitudes.empty() || rows.empty() || rows.front() >= rows.back()) {
    return {};
  }
  return str(
      "the data's rows run from south to north (latitudes ", rows.front(), " to ", rows.back(),
      "), and the checkpoint does not know which way those of its training ran: if from the north, the model now "
      "sees the globe upside down");
}

std::string statistics_difference(const TrainingData& trained, const TrainingData& given) {
  if (trained.means.empty() || given.means.empty()) {
    return {};
  }
  if (trained.means.size() != given.means.size()) {
    return str("the data have statistics of ", given.means.size(), " channels, the model was trained with those of ",
               trained.means.size());
  }
  for (size_t c = 0; c < trained.means.size(); ++c) {
    if (has_moved(trained.means[c], trained.stds[c], given.means[c], given.stds[c])) {
      return str("channel ", channel_text(trained, c), " has the mean ", given.means[c], " and the deviation ",
                 given.stds[c], ", the model was trained with ", trained.means[c], " and ", trained.stds[c]);
    }
  }
  const size_t increments = std::min(trained.increment_stds.size(), given.increment_stds.size());
  for (size_t c = 0; c < increments; ++c) {
    if (has_moved(trained.increment_means[c], trained.increment_stds[c], given.increment_means[c],
                  given.increment_stds[c])) {
      return str("the increments of predicted channel ", c, " have the mean ", given.increment_means[c],
                 " and the deviation ", given.increment_stds[c], ", the model was trained with ",
                 trained.increment_means[c], " and ", trained.increment_stds[c]);
    }
  }
  return {};
}

namespace {

void check_pairs(const char* what, const std::vector<double>& means, const std::vector<double>& stds,
                 const std::string& where) {
  const auto is_finite = [](double value) { return std::isfinite(value); };
  if (means.size() != stds.size() || !std::all_of(means.begin(), means.end(), is_finite) ||
      !std::all_of(stds.begin(), stds.end(), [](double std) { return std::isfinite(std) && std > 0.0; })) {
    throw Error(ErrorClass::kBadData,
                str(where, " has ", means.size(), " means and ", stds.size(), " standard deviations of ", what,
                    " that normalise nothing: ", shown(join(means)), "; ", shown(join(stds))),
                "needed are a finite mean and a finite deviation above 0 of each channel");
  }
}

}  // namespace

void check_training_data(const TrainingData& data, const std::string& where) {
  check_pairs("channels", data.means, data.stds, where);
  check_pairs("increments", data.increment_means, data.increment_stds, where);
  data::check_grid(data.grid, where);
  if (data.lead.rows < 0 || !std::isfinite(data.lead.hours) || data.lead.hours < 0.0) {
    throw Error(ErrorClass::kBadData, str(where, " has pairs that are ", data::lead_text(data.lead), " apart"),
                "it is damaged: use another checkpoint");
  }
}

std::string training_data_json(const TrainingData& data) {
  SortedJson json = SortedJson::object();
  for_each_kept_field(data, [&](const char* name, const auto& value) {
    if (!is_unknown(value)) {
      json[name] = value;
    }
  });
  // Names may be of bytes that are no UTF-8.
  return json.dump(-1, ' ', false, SortedJson::error_handler_t::replace);
}

TrainingData training_data_of(const std::string& json, const std::string& where) {
  TrainingData data;
  try {
    const SortedJson in = SortedJson::parse(json);
    for_each_kept_field(data, [&](const char* name, auto& value) {
      if (in.contains(name)) {
        in.at(name).get_to(value);
      }
    });
  } catch (const SortedJson::exception& error) {
    throw Error(ErrorClass::kBadData, str(where, " describes the data of its training wrongly: ", error.what()),
                "another program has written it: take the entry out of the file");
  }
  check_training_data(data, where);
  return data;
}

namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;  // odd: distinct indices have distinct keys

// For one key a bijection of the bits, so one changed value always changes the sum; for two the difference of two
// mixed words depends on both bits and keys, so exchanged values do not cancel.
inline uint64_t mix(uint64_t key, uint64_t bits) {
  uint64_t word = bits ^ key;
  word = (word ^ (word >> 32)) * 0xD6E8FEB86659FD93;
  word = (word ^ (word >> 32)) * 0xD6E8FEB86659FD93;
  return word ^ (word >> 32);
}

inline uint64_t bits_of(float value) {
  return std::bit_cast<uint32_t>(value);
}
inline uint64_t bits_of(double value) {
  return std::bit_cast<uint64_t>(value);
}

// Becomes a part of each of the versions below.
template <class T>
[[gnu::always_inline]] inline uint64_t sum_of(const T* values, int64_t count, int64_t first_index) {
  uint64_t key = (static_cast<uint64_t>(first_index) + 1) * kGolden;
  uint64_t sum = 0;
#pragma omp simd reduction(+ : sum) linear(key : kGolden)
  for (int64_t i = 0; i < count; ++i) {
    sum += mix(key, bits_of(values[i]));
    key += kGolden;
  }
  return sum;
}

}  // namespace

VH_VERSIONS uint64_t checksum_of(const float* values, int64_t count, int64_t first_index) {
  return sum_of(values, count, first_index);
}

VH_VERSIONS uint64_t checksum_of(const double* values, int64_t count, int64_t first_index) {
  return sum_of(values, count, first_index);
}

void add_up(Checksums& checksums, const comm::MpiGroup& ranks) {
  std::vector<uint64_t> sums;
  for (const auto& [name, checksum] : checksums) {
    sums.push_back(checksum.value());
  }
  ranks.sum(sums);
  auto sum = sums.begin();
  for (auto& [name, checksum] : checksums) {
    checksum = {};
    checksum.add(*sum++);
  }
}

namespace {

// But for the preset, whose name defines nothing that the other options do not.
std::vector<options::Option> model_options(RunConfig& config) {
  options::OptionTable table;
  add_model(table, config);
  std::vector<options::Option> out;
  std::copy_if(table.options().begin(), table.options().end(), std::back_inserter(out),
               [](const options::Option& option) { return option.name != "preset"; });
  return out;
}

// What texts of earlier versions have not: its default is what all models had.
bool is_added_later(const std::string& model_option) {
  return model_option == "gelu" || model_option == "loss";
}

std::string option_text(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

constexpr int64_t kGrain = 1 << 17;  // elements that a thread takes at least

template <class T>
uint64_t sum_of_row(const T* values, int64_t count, int64_t stride, int64_t first_index) {
  if (stride == 1) {
    return checksum_of(values, count, first_index);
  }
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += checksum_of(values + i * stride, 1, first_index + i);
  }
  return sum;
}

// One dim of a box: its extent, and by how much a step in it moves in memory and in the global tensor.
struct Dim {
  int64_t size;
  int64_t stride;
  int64_t global_stride;
};

// Dims that lie together in memory and in the global tensor become one, so that rows are long.
std::vector<Dim> joined_dims(std::span<const int64_t> global, const at::Tensor& values) {
  std::vector<Dim> dims;  // the innermost first
  int64_t global_stride = 1;
  for (size_t d = global.size(); d-- > 0;) {
    const auto dim = static_cast<int64_t>(d);
    const Dim next{values.size(dim), values.stride(dim), global_stride};
    if (!dims.empty() && next.stride == dims.back().size * dims.back().stride &&
        next.global_stride == dims.back().size * dims.back().global_stride) {
      dims.back().size *= next.size;
    } else {
      dims.push_back(next);
    }
    global_stride *= global[d];
  }
  if (dims.empty()) {
    dims.push_back({1, 1, 1});
  }
  return dims;
}

template <class T>
uint64_t sum_of_box(const std::vector<Dim>& dims, size_t outer, const T* values, int64_t first_index) {
  const Dim& dim = dims[outer];
  if (outer == 0 && dim.global_stride == 1) {
    return sum_of_row(values, dim.size, dim.stride, first_index);
  }
  uint64_t sum = 0;
  for (int64_t i = 0; i < dim.size; ++i) {
    const T* part = values + i * dim.stride;
    const int64_t index = first_index + i * dim.global_stride;
    sum += outer == 0 ? sum_of_row(part, 1, 1, index) : sum_of_box(dims, outer - 1, part, index);
  }
  return sum;
}

// The same on all threads: sums of sums are the same in any order.
template <class T>
uint64_t sum_in_parallel(const std::vector<Dim>& dims, const T* values, int64_t first_index) {
  const Dim& outer = dims.back();
  int64_t elements = 1;  // of one step in the outer dim
  for (size_t d = 0; d + 1 < dims.size(); ++d) {
    elements *= dims[d].size;
  }
  const int64_t grain = std::max<int64_t>(kGrain / elements, 1);
  return at::parallel_reduce(
      0, outer.size, grain, uint64_t{0},
      [&](int64_t begin, int64_t end, uint64_t sum) {
        std::vector<Dim> part = dims;
        part.back().size = end - begin;
        return sum + sum_of_box(part, part.size() - 1, values + begin * outer.stride,
                                first_index + begin * outer.global_stride);
      },
      std::plus<>());
}

}  // namespace

std::string model_json(const model::VitOptions& options) {
  RunConfig config;
  config.model = options;
  nlohmann::ordered_json object;
  for (const options::Option& option : model_options(config)) {
    const std::string text = option.value.print();
    const bool is_number = option.value.kind == options::Kind::kInteger || option.value.kind == options::Kind::kNumber;
    object[option.name] = is_number ? nlohmann::ordered_json::parse(text) : nlohmann::ordered_json(text);
  }
  return object.dump();
}

model::VitOptions model_from_json(const std::string& json) {
  const nlohmann::json object = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    throw Error(ErrorClass::kBadData, str("the model options '", json.substr(0, 60), "' are no JSON object"),
                "the file was not written by this program, or is damaged");
  }
  RunConfig config;
  for (const options::Option& option : model_options(config)) {
    const auto found = object.find(option.name);
    if (found == object.end() && is_added_later(option.name)) {
      continue;
    }
    if (found == object.end() || !option.value.parse(option_text(*found))) {
      throw Error(ErrorClass::kBadData,
                  str("the model options '", json.substr(0, 60), "...' have ",
                      found == object.end() ? "no " : "a wrong ", option.name),
                  "the file was not written by this program, or is damaged");
    }
  }
  return config.model;
}

std::vector<ModelDifference> model_differences(const std::string& first_json, const std::string& second_json) {
  RunConfig first;
  first.model = model_from_json(first_json);
  RunConfig second;
  second.model = model_from_json(second_json);
  const auto first_options = model_options(first);
  const auto second_options = model_options(second);
  std::vector<ModelDifference> differences;
  for (size_t i = 0; i < first_options.size(); ++i) {
    ModelDifference difference{first_options[i].name, first_options[i].value.print(), second_options[i].value.print()};
    if (difference.first != difference.second) {
      differences.push_back(std::move(difference));
    }
  }
  return differences;
}

bool is_training_only(const std::string& model_option) {
  constexpr std::array<std::string_view, 5> kTrainingOnly = {"dropout", "attention-dropout", "drop-path",
                                                             "label-smoothing", "loss"};
  return std::find(kTrainingOnly.begin(), kTrainingOnly.end(), model_option) != kTrainingOnly.end();
}

std::vector<std::string> model_differences(const std::string& checkpoint_json, const model::VitOptions& wanted) {
  std::vector<std::string> lines;
  for (const ModelDifference& difference : model_differences(checkpoint_json, model_json(wanted))) {
    lines.push_back(
        str("--", difference.option, " is ", difference.second, ", the checkpoint's is ", difference.first));
  }
  return lines;
}

std::string dataset_path(const std::string& group, const std::string& name) {
  return str(group, "/", name);
}

void TensorChecksum::add(std::span<const int64_t> global, std::span<const int64_t> start, const at::Tensor& values) {
  VH_ASSERT(values.is_cpu() && start.size() == global.size() && values.dim() == static_cast<int64_t>(global.size()),
            str("box of ", values.dim(), " dims of a tensor of ", global.size()));
  if (values.numel() == 0) {
    return;
  }
  int64_t first_index = 0;
  for (size_t d = 0; d < global.size(); ++d) {
    VH_ASSERT(start[d] >= 0 && start[d] + values.size(static_cast<int64_t>(d)) <= global[d], str("box in dim ", d));
    first_index = first_index * global[d] + start[d];
  }
  const auto dims = joined_dims(global, values);
  if (values.scalar_type() == at::kFloat) {
    sum_ += sum_in_parallel(dims, values.const_data_ptr<float>(), first_index);
  } else {
    VH_ASSERT(values.scalar_type() == at::kDouble, str("values of type ", c10::toString(values.scalar_type())));
    sum_ += sum_in_parallel(dims, values.const_data_ptr<double>(), first_index);
  }
}

std::string TensorChecksum::text() const {
  char text[17];
  std::snprintf(text, sizeof(text), "%016" PRIx64, sum_);
  return text;
}

}  // namespace vit_hybrid::train
