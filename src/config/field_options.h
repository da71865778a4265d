// Options of fields: their channels, what a model takes and gives of them, how far ahead, and what they weigh in the
// loss.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data/datasets/coordinates.h"
#include "src/config/option_table.h"
#include "src/config/run_config.h"

namespace vit_hybrid::train {

/// The options channels and variables, those of data::FieldQuery.
void add_channels(options::OptionTable& table, std::string& channels, std::string& variables);

/// The options dt and dt-hours, of which data::asked_lead() makes what counts.
void add_lead(options::OptionTable& table, data::Lead& lead, const std::string& help_of_rows);

/// What a model of weather takes and gives beside the state: data::FieldRoles, and TargetKind.
void add_roles(options::OptionTable& table, DataConfig& data);

/// As --loss-channel-weights: the inverse variance of what a channel changes by.
inline constexpr const char* kIncrementWeights = "increments";

/// The weights of a forecast's loss.
void add_loss_weights(options::OptionTable& table, LossConfig& loss);

/// Whether the text names a file of weights.
bool is_weights_file(const std::string& channel_weights);

/// The names and weights of "t2m=2,z500=0.5". Error(kUsage) for what is no such list, a weight that is negative or not
/// finite, and a name that comes twice. Pure.
using ChannelWeights = std::vector<std::pair<std::string, double>>;
ChannelWeights parse_channel_weights(const std::string& text);

}  // namespace vit_hybrid::train
