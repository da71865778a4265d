// PatchEmbedding: image to tokens; the first layer unit.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/layer.h"
#include "model/vit_options.h"
#include "parallel/comm/communicator.h"
#include "parallel/tensor/linear.h"
#include "parallel/tensor/parameter_buffer.h"

namespace vit_hybrid::model {

/// z0 = [class token; conv(x)] + positions, where conv has kernel = stride = patch (A. Dosovitskiy et al., ICLR 2021,
/// eq. 1); where patches are cut, x is padded: images with zeros, fields as on a planet (kernels::Padding). Whole on
/// every tensor rank.
class PatchEmbedding : public Layer {
 public:
  PatchEmbedding(const VitOptions& options, tensor::ParameterBuffer& buffer, const comm::Communicator& tensor_group);
  /// x [B, C, H, W] -> [B, N, D]. The graph keeps x; the gradient of x is not computed.
  ResidualStream forward(ResidualStream stream, const tensor::StepContext& context) override;

 private:
  at::Tensor patches(const at::Tensor& x) const;  // [B, C, H, W] -> [B, P, C ph pw]
  at::Tensor embed(const at::Tensor& x);
  void add_gradients(const at::Tensor& dz_BND, const at::Tensor& x, const tensor::StepContext& context) const;

  VitOptions options_;
  tensor::LinearProducts projection_;
  tensor::Parameter class_token_;  ///< undefined without a class token
  tensor::Parameter positions_;
};

}  // namespace vit_hybrid::model
