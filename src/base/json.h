// Json: the values of records.
#pragma once

#include <nlohmann/json.hpp>

namespace vit_hybrid {

/// Keys keep their order. Numbers are written with the fewest digits that read back as the same number; a number that
/// is not finite is written as null, as JSON has no other way.
using Json = nlohmann::ordered_json;

}  // namespace vit_hybrid
