// Multi-head self-attention over the heads of this tensor rank.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/layer.h"
#include "model/recompute.h"
#include "model/vit_options.h"
#include "parallel/comm/communicator.h"
#include "parallel/tensor/linear.h"
#include "parallel/tensor/parameter_buffer.h"
#include "src/kernels/dropout.h"

namespace vit_hybrid::model {

/// softmax(q k^T / sqrt(d_h)) v per head, then the projection (A. Vaswani et al., NeurIPS 2017, section 3.2). qkv is
/// column-parallel, cut by heads inside each of q, k and v; the projection is row-parallel.
class Attention {
 public:
  /// Parameters blocks.<unit - 1>.attn.*
  Attention(const VitOptions& options, int64_t unit, tensor::ParameterBuffer& buffer, comm::Communicator& group,
            Recompute recompute);
  /// x [B, N, D], the same on all tensor ranks -> a branch that is the same on all. The graph keeps x, qkv
  /// (kSelective: not) and the attention's output (its heads), and one number a query and head. Collective over tensor.
  Branch forward(const at::Tensor& x, const tensor::StepContext& context);

 private:
  at::Tensor attend_heads(const at::Tensor& x, const tensor::StepContext& context);

  Recompute recompute_;
  Range heads_;  ///< of this tensor rank
  kernels::DropKey projection_drop_;
  kernels::DropKey attention_drop_;
  tensor::ColumnParallelLinear qkv_;
  tensor::RowParallelLinear projection_;
};

}  // namespace vit_hybrid::model
