// The weights of a loss from the grid, from statistics, from a file, or by name.
#include "src/train/loss_weights.h"

#include <ATen/ops/tensor.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <numeric>

#include "data/datasets/field_catalogue.h"
#include "data/datasets/normalization.h"
#include "data/datasets/npy.h"
#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/config/field_options.h"

namespace vit_hybrid::train {

namespace {

constexpr const char* kOption = "--loss-channel-weights";
constexpr const char* kMakeIncrements = "give --stats FOLDER, as `vit_hybrid data stats --increments` makes it";

std::vector<double> weights_of_file(const std::string& path, int64_t channels) {
  const at::Tensor values = data::read_npy(path).to(at::kDouble).contiguous();
  if (values.dim() != 1 || values.size(0) != channels) {
    throw Error(ErrorClass::kBadData, str(kOption, ": ", path, " has the shape (", join(values.sizes()),
                                          "), needed is (", channels, "): the output has ", channels, " channels"));
  }
  const auto* const first = values.const_data_ptr<double>();
  for (int64_t c = 0; c < channels; ++c) {
    if (!std::isfinite(first[c]) || first[c] < 0.0) {
      throw Error(ErrorClass::kBadData, str(kOption, ": ", path, " holds ", first[c], " for channel ", c),
                  "a weight is finite and at least 0");
    }
  }
  return {first, first + channels};
}

std::vector<double> weights_by_name(const std::string& text, const std::vector<std::string>& channels) {
  std::vector<double> weights(channels.size(), 1.0);
  for (const auto& [name, weight] : parse_channel_weights(text)) {
    const auto place = std::find_if(channels.begin(), channels.end(), [wanted = name](const std::string& channel) {
      return data::canonical_channel(channel) == data::canonical_channel(wanted);
    });
    if (place == channels.end()) {
      throw Error(ErrorClass::kUsage, str(kOption, " names '", shown(name), "', which is no channel of the output"),
                  str("its channels are ", shown(join(channels))));
    }
    weights[static_cast<size_t>(place - channels.begin())] = weight;
  }
  return weights;
}

// 1 / variance of the increments of normalised fields. Collective over `group`.
std::vector<double> weights_of_increments(const std::string& folder, const comm::MpiGroup& group,
                                          const LossFields& fields) {
  const auto count = std::ssize(fields.channels);
  comm::agreed(group, [&] {
    if (folder.empty() || std::ssize(fields.stds) != count) {
      throw Error(ErrorClass::kUsage,
                  str(kOption, " ", kIncrementWeights, " needs statistics of the data, and there are none"),
                  kMakeIncrements);
    }
  });
  const std::string means = folder + "/time_diff_means.npy", deviations = folder + "/time_diff_stds.npy";
  comm::agreed_on_rank_0(group, [&] {
    for (const std::string& path : {means, deviations}) {
      if (::access(path.c_str(), R_OK) != 0) {
        throw Error(ErrorClass::kMissingInput,
                    str(kOption, " ", kIncrementWeights, " needs ", path, ": ", reason(errno)), kMakeIncrements);
      }
    }
    data::require_increment_lead(folder, fields.lead);
  });
  std::vector<double> weights =
      data::Normalization::read(group, means, deviations, count,
                                fields.names_are_given ? join(fields.channels, ",") : std::string())
          .std;
  std::transform(weights.begin(), weights.end(), fields.stds.begin(), weights.begin(),
                 [](double of_increment, double of_state) { return std::pow(of_state / of_increment, 2); });
  return weights;
}

std::vector<double> channel_weights(const std::string& text, const std::string& stats, const comm::MpiGroup& group,
                                    const LossFields& fields) {
  std::vector<double> weights(fields.channels.size());
  if (text == kIncrementWeights) {
    weights = weights_of_increments(stats, group, fields);
  } else {
    comm::agreed_on_rank_0(group, [&] {
      weights = is_weights_file(text) ? weights_of_file(text, std::ssize(fields.channels))
                                      : weights_by_name(text, fields.channels);
    });
    group.broadcast(weights.data(), std::ssize(weights) * static_cast<int64_t>(sizeof(double)), 0);
  }
  // As parts of the largest: a sum of finite numbers may be none.
  const double largest = *std::max_element(weights.begin(), weights.end());
  comm::agreed(group, [&] {
    if (!(largest > 0.0) || !std::isfinite(largest)) {
      throw Error(ErrorClass::kUsage, str(kOption, " '", shown(text), "': the largest weight is ", largest),
                  "at least one channel must count, and finitely");
    }
  });
  for (double& weight : weights) {
    weight /= largest;
  }
  const double mean = std::accumulate(weights.begin(), weights.end(), 0.0) / static_cast<double>(weights.size());
  for (double& weight : weights) {
    weight /= mean;
  }
  return weights;
}

}  // namespace

LossFields loss_fields(const data::Dataset& dataset, const TrainingData& described) {
  LossFields fields = {described.grid, dataset.channel_names(), !described.channels.empty(), {}};
  if (described.increment_stds.empty()) {  // else their lead was looked at when they were read
    fields.lead = described.lead;
  }
  if (described.stds.size() >= fields.channels.size()) {  // of rows, in which what is predicted comes last
    fields.stds.assign(described.stds.end() - std::ssize(fields.channels), described.stds.end());
  }
  return fields;
}

model::FieldWeights loss_weights(const LossConfig& loss, const model::VitOptions& model, const std::string& stats,
                                 const comm::MpiGroup& group, const LossFields& fields) {
  model::FieldWeights weights;
  if (model.task != model::Task::kForecast) {
    return weights;
  }
  const MemoryScope scope(MemoryClass::kWorkspaces);
  if (loss.latitude_weights) {
    weights.rows = at::tensor(data::latitude_weights(fields.grid, model.image_height), at::kDouble);
  }
  if (!loss.channel_weights.empty()) {
    VH_ASSERT(std::ssize(fields.channels) == model.out_channels,
              str(fields.channels.size(), " names of ", model.out_channels, " channels"));
    weights.channels = at::tensor(channel_weights(loss.channel_weights, stats, group, fields), at::kDouble);
  }
  return weights;
}

}  // namespace vit_hybrid::train
