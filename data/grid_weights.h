// Latitude weights of the weather metrics.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

namespace vit_hybrid::data {

/// w_i = H cos(phi_i) / sum_k cos(phi_k), phi_i = 90 - 180 i/(H-1) degrees, i = 0 .. H-1: the weight of latitude row i.
/// Their mean is 1. One row alone has weight 1.
inline std::vector<double> latitude_weights(int64_t height) {
  std::vector<double> weights(static_cast<size_t>(height), 1.0);
  if (height < 3) {  // two rows are both poles, of no area: they count alike
    return weights;
  }
  double sum = 0.0;
  for (int64_t i = 0; i < height; ++i) {
    const double phi = std::numbers::pi * (0.5 - static_cast<double>(i) / static_cast<double>(height - 1));
    weights[static_cast<size_t>(i)] = std::cos(phi);
    sum += weights[static_cast<size_t>(i)];
  }
  for (double& weight : weights) {
    weight *= static_cast<double>(height) / sum;
  }
  return weights;
}

}  // namespace vit_hybrid::data
