// A transformer block: multi-head self-attention over the heads of a tensor rank, the MLP with its hidden features cut
// over the tensor axis, and the two sublayers of them, each with its norm and its branch of the residual stream.
//
// u = z + Attention(LN(z)), z' = u + MLP(LN(u)) (A. Dosovitskiy et al., ICLR 2021, eq. 2 and 3).
//
// Without recompute, for backward the graph keeps, a token, over a tensor group of t ranks: z, LN(z), u, LN(u) (D
// each), qkv (3 D / t), the attention's output (D / t), the input and the output of GELU (hidden / t each), two
// numbers a norm and one a head: 16 D for one rank and the usual hidden = 4 D. Dropout adds a byte an element.
// model/vit_costs.h has the sum, and what recompute leaves of it: kSelective neither qkv nor the input of GELU.
// RecomputedUnit is for kFull.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/layer.h"
#include "model/layer_norm.h"
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

/// fc2(gelu(fc1(x))); fc1 column-parallel, fc2 row-parallel.
class Mlp {
 public:
  /// Parameters blocks.<unit - 1>.mlp.*
  Mlp(const VitOptions& options, int64_t unit, tensor::ParameterBuffer& buffer, comm::Communicator& group,
      tensor::Keep keep = tensor::Keep::kPreActivation);
  /// x [B, N, D], the same on all tensor ranks -> a branch that is the same on all. The graph keeps x and, for the
  /// hidden features of this rank, the output of GELU and, as `keep` says, its input. Collective over tensor.
  Branch forward(const at::Tensor& x, const tensor::StepContext& context);

 private:
  // fc2(dropout(gelu(fc1(x)))) in either way, equal but for rounding: GELU's backward a kernel of its own, or the end
  // of fc2's product, with nothing between them.
  tensor::RegionSum forward_with_own_gelu(const at::Tensor& x, const tensor::StepContext& context);
  tensor::RegionSum forward_with_fused_gelu(const at::Tensor& x, const tensor::StepContext& context);

  VitOptions options_;
  Range hidden_;  ///< of this tensor rank
  kernels::DropKey hidden_drop_;
  kernels::DropKey output_drop_;
  tensor::Keep keep_;
  tensor::ColumnParallelLinear fc1_;
  tensor::RowParallelLinear fc2_;
};

/// z [B, N, D], the same on all tensor ranks -> z and Attention(LN(z)).
class AttentionSublayer : public Layer {
 public:
  /// Parameters blocks.<unit - 1>.norm1.* and attn.*
  AttentionSublayer(const VitOptions& options, int64_t unit, tensor::ParameterBuffer& buffer, comm::Communicator& group,
                    Recompute recompute);
  /// Collective over tensor: a sum, and one in backward.
  ResidualStream forward(ResidualStream stream, const tensor::StepContext& context) override;

 private:
  LayerNorm norm_;
  Attention attention_;
  kernels::DropKey path_;
};

/// u [B, N, D], the same on all tensor ranks -> u and MLP(LN(u)).
class MlpSublayer : public Layer {
 public:
  /// Parameters blocks.<unit - 1>.norm2.* and mlp.*
  MlpSublayer(const VitOptions& options, int64_t unit, tensor::ParameterBuffer& buffer, comm::Communicator& group,
              Recompute recompute);
  /// Collective over tensor: a sum, and one in backward.
  ResidualStream forward(ResidualStream stream, const tensor::StepContext& context) override;

 private:
  LayerNorm norm_;
  Mlp mlp_;
  kernels::DropKey path_;
};

/// The layers of block `unit`; `buffer` and `group` outlive them.
Layers make_block(const VitOptions& options, int64_t unit, tensor::ParameterBuffer& buffer, comm::Communicator& group,
                  Recompute recompute);

}  // namespace vit_hybrid::model
