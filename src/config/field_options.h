// Options of fields: their channels, what a model takes and gives of them, and how far ahead.
#pragma once

#include <string>

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

}  // namespace vit_hybrid::train
