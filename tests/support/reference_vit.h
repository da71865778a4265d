// ReferenceVit: the same network built from torch::nn modules and LibTorch's autograd, the oracle of the model's tests.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>

#include "model/vit_options.h"
#include "parallel/tensor/step_context.h"

namespace vit_hybrid::testing {

/// Whole tensors by canonical name.
using NamedTensors = std::map<std::string, at::Tensor>;

/// One process, no parallelism, nothing of ours but the random stream that masks are drawn from, one draw after the
/// other.
class ReferenceVit {
 public:
  /// Modules of the given type; every parameter is copied from `parameters`, whose names must be exactly its own.
  ReferenceVit(const model::VitOptions& options, at::ScalarType type, const NamedTensors& parameters);
  ~ReferenceVit();

  /// image [B, C, H, W] -> prediction [B, C_out, H, W] or logits [B, num_classes], on LibTorch's autograd graph.
  at::Tensor forward(const at::Tensor& image, const tensor::StepContext& context);
  /// The same before it is a field: patches row by row, features over (row, column, channel).
  at::Tensor head_output(const at::Tensor& image, const tensor::StepContext& context);
  /// After a backward.
  NamedTensors gradients() const;

 private:
  struct Modules;
  std::unique_ptr<Modules> modules_;
};

}  // namespace vit_hybrid::testing
