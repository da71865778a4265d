// ForecastOptions: what the command `forecast` is asked for.
#pragma once

#include <cstdint>
#include <string>

#include "src/infer/model_use.h"

namespace vit_hybrid::train {

struct ForecastOptions {
  ModelUse use;
  int64_t start = 0;    ///< time to start from, counted over all files
  int64_t steps = 8;    ///< lead times
  std::string channel;  ///< of the picture: name or number; empty: the first
  int64_t lead = 0;     ///< of the picture, 1 to steps; 0: the last one with truth
};

/// Paths of the three files: use.out, and the same with the endings .json and .png.
struct ForecastPaths {
  std::string fields;
  std::string figures;
  std::string picture;
};
ForecastPaths forecast_paths(const ForecastOptions& options);

}  // namespace vit_hybrid::train
