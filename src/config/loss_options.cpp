// Options of the loss's weights, and the list of them.
#include "src/config/loss_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "data/datasets/field_catalogue.h"
#include "data/datasets/year_files.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::train {

void add_loss_weights(options::OptionTable& table, LossConfig& loss) {
  table.add({.name = "loss-latitude-weights",
             .value = options::flag(loss.latitude_weights),
             .help = "Let each value count in a forecast's loss by the area that it stands for: by cos(latitude), with "
                     "mean 1 over the rows, as in the scores."});
  table.add({.name = "loss-channel-weights",
             .value = options::text(loss.channel_weights, "increments|FILE.npy|name=weight,..."),
             .help = "What each channel counts in a forecast's loss: increments, by the inverse variance of its change "
                     "in normalised units, (global_stds / time_diff_stds)^2 of the folder stats; a file with a number "
                     "for each channel of the output, in their order; or numbers by name, 1 for the others. All are "
                     "scaled to mean 1 over the channels, so that losses stay comparable; not given: alike."});
}

bool is_weights_file(const std::string& channel_weights) {
  return channel_weights.ends_with(".npy");
}

ChannelWeights parse_channel_weights(const std::string& text) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorClass::kUsage, what,
                "allowed: increments, the name of a .npy file, or name=weight,name=weight,... with weights from 0");
  };
  ChannelWeights weights;
  for (const std::string& part : data::split_channels(text)) {
    const size_t equals = part.rfind('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == part.size()) {
      refuse(str("'", shown(part), "' is no weight of a channel"));
    }
    const std::string name = part.substr(0, equals), number = part.substr(equals + 1);
    double weight = 0.0;
    const char* const end = number.data() + number.size();
    const auto [read_end, problem] = std::from_chars(number.data(), end, weight);
    if (problem != std::errc() || read_end != end || !std::isfinite(weight) || weight < 0.0) {
      refuse(str("the weight of '", shown(name), "' is '", shown(number), "', which is no number from 0"));
    }
    const bool is_double = std::any_of(weights.begin(), weights.end(), [&](const auto& other) {
      return data::canonical_channel(other.first) == data::canonical_channel(name);
    });
    if (is_double) {
      refuse(str("'", shown(name), "' has two weights"));
    }
    weights.emplace_back(name, weight);
  }
  return weights;
}

}  // namespace vit_hybrid::train
