// A block as its two sublayers: attention and MLP, each with its norm and its branch of the residual stream.
//
// u = z + Attention(LN(z)), z' = u + MLP(LN(u)) (A. Dosovitskiy et al., ICLR 2021, eq. 2 and 3).
//
// Without recompute, for backward the graph keeps, a token, over a tensor group of t ranks: z, LN(z), u, LN(u) (D
// each), qkv (3 D / t), the attention's output (D / t), the input and the output of GELU (hidden / t each), two
// numbers a norm and one a head: 16 D for one rank and the usual hidden = 4 D. Dropout adds a byte an element.
// model/vit_costs.h has the sum, and what recompute leaves of it: kSelective neither qkv nor the input of GELU.
// RecomputedUnit is for kFull.
#pragma once

#include "model/attention.h"
#include "model/layer.h"
#include "model/layer_norm.h"
#include "model/mlp.h"
#include "model/recompute.h"

namespace vit_hybrid::model {

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
