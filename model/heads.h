// The heads of the two tasks; the last layer unit. Whole on every tensor rank.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/layer.h"
#include "model/layer_norm.h"
#include "model/vit_options.h"
#include "parallel/comm/communicator.h"
#include "parallel/tensor/linear.h"
#include "parallel/tensor/parameter_buffer.h"

namespace vit_hybrid::model {

/// Norm, and a linear layer without bias from each token to its patch of the field.
class ForecastHead : public Layer {
 public:
  ForecastHead(const VitOptions& options, tensor::ParameterBuffer& buffer, const comm::Communicator& tensor_group);
  /// x [B, N, D] -> patches [B, N, ph pw C_out], of which fields_of() makes fields and the loss needs none.
  ResidualStream forward(ResidualStream stream, const tensor::StepContext& context) override;

 private:
  LayerNorm norm_;
  tensor::Linear head_;
};

/// The class token, or the mean over the tokens, through norm and linear layer. Only what is pooled passes the norm:
/// the other tokens' would not be seen.
class ClassifyHead : public Layer {
 public:
  ClassifyHead(const VitOptions& options, tensor::ParameterBuffer& buffer, const comm::Communicator& tensor_group);
  /// x [B, N, D] -> logits [B, num_classes].
  ResidualStream forward(ResidualStream stream, const tensor::StepContext& context) override;

 private:
  VitOptions options_;
  LayerNorm norm_;
  tensor::Linear head_;
};

}  // namespace vit_hybrid::model
