// The JSON of a safetensors header, read strictly and without ever building more than a header.
#pragma once

#include <string>
#include <string_view>

#include "src/checkpoint/safetensors_header.h"

namespace vit_hybrid::train {

/// The key of the texts that a header may hold beside the tensors.
inline constexpr const char* kSafetensorsMetadata = "__metadata__";

/// A name from a file, as a message can show it: in quotes, shortened, without control characters.
std::string shown_name(const std::string& text);

/// Fills `header` and returns nothing, or what keeps the text from being a header's JSON; sizes and offsets are not
/// compared with anything.
std::string read_safetensors_json(std::string_view json, SafetensorsHeader& header);

}  // namespace vit_hybrid::train
