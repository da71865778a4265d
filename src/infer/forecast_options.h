// ForecastOptions: what the command `forecast` is asked for.
#pragma once

#include <cstdint>
#include <string>

#include "src/infer/model_use.h"

namespace vit_hybrid::train {

struct ForecastOptions {
  ModelUse use;
  int64_t start = 0;  ///< time to start from, counted over all files
  int64_t steps = 8;  ///< lead times
};

/// Paths of the two files: use.out, and the same with the ending .json.
struct ForecastPaths {
  std::string fields;
  std::string figures;
};
ForecastPaths forecast_paths(const ForecastOptions& options);

}  // namespace vit_hybrid::train
