// The parameters of one linear layer.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "parallel/tensor/parameter_buffer.h"

namespace vit_hybrid::testing {

/// layer.weight [M, K] and layer.bias [M] of this type, zeros, with gradients in fp32 (fp64 for fp64), on the host.
inline tensor::ParameterBuffer make_linear_layer(int64_t inputs, int64_t outputs, at::ScalarType type) {
  using tensor::DecayGroup;
  std::vector<tensor::ParameterSpec> specs = {
      tensor::replicated("layer.weight", {outputs, inputs}, {}, DecayGroup::kMatrix),
      tensor::replicated("layer.bias", {outputs}, {}, DecayGroup::kVector)};
  auto layout = tensor::make_flat_layout(specs, 1, 1);
  const auto gradient = type == at::kDouble ? at::kDouble : at::kFloat;
  return {std::move(specs), std::move(layout), type, gradient, at::kCPU};
}

}  // namespace vit_hybrid::testing
