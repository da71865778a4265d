// The weights of a forecast's loss: their options, and what a list of channels' weights says.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/config/option_table.h"

namespace vit_hybrid::train {

struct LossConfig {
  bool latitude_weights = false;  ///< rows count by data::latitude_weights()
  std::string channel_weights;    ///< empty: channels count alike; else kIncrementWeights, a .npy file, or a list
};

/// As --loss-channel-weights: the inverse variance of what a channel changes by.
inline constexpr const char* kIncrementWeights = "increments";

void add_loss_weights(options::OptionTable& table, LossConfig& loss);

/// Whether the text names a file of weights.
bool is_weights_file(const std::string& channel_weights);

/// The names and weights of "t2m=2,z500=0.5". Error(kUsage) for what is no such list, a weight that is negative or not
/// finite, and a name that comes twice. Pure.
using ChannelWeights = std::vector<std::pair<std::string, double>>;
ChannelWeights parse_channel_weights(const std::string& text);

}  // namespace vit_hybrid::train
