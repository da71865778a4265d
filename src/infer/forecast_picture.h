// The picture of a forecast: truth, forecast and error of one channel.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "data/datasets/coordinates.h"

namespace vit_hybrid::train {

struct ForecastPicture {
  std::string channel;
  std::string unit;  ///< may be empty
  int64_t lead = 1;
  std::string source;   ///< where the forecast started
  at::Tensor forecast;  ///< [H, W], host
  at::Tensor truth;     ///< the same, or undefined: then the forecast alone is drawn
  data::Grid grid;      ///< of their points
};

/// Writes a PNG file. Truth and forecast have the truth's range of colours, the error one that is even about 0.
/// Error(kCannotCreate), Error(kIo).
void draw_forecast(const ForecastPicture& picture, const std::string& path);

}  // namespace vit_hybrid::train
