// Block: attention and MLP with norms and residuals; a layer unit.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/attention.h"
#include "model/layer_norm.h"
#include "model/mlp.h"
#include "model/recompute.h"

namespace vit_hybrid::model {

/// u = z + Attention(LN(z)), z' = u + MLP(LN(u)) (A. Dosovitskiy et al., ICLR 2021, eq. 2 and 3).
///
/// Without recompute, for backward the graph keeps, a token, over a tensor group of t ranks: z, LN(z), u, LN(u) (D
/// each), qkv (3 D / t), the attention's output (D / t), the input and the output of GELU (hidden / t each), two
/// numbers a norm and one a head: 16 D for one rank and the usual hidden = 4 D. Dropout adds a byte an element.
/// model/vit_costs.h has the sum, and what recompute leaves of it: kSelective neither qkv nor the input of GELU.
/// RecomputedUnit is for kFull.
class Block : public Unit {
 public:
  /// Parameters blocks.<unit - 1>.*
  Block(const VitOptions& options, int64_t unit, tensor::ParameterBuffer& buffer, comm::Communicator& group,
        Recompute recompute);
  /// [B, N, D], the same on all tensor ranks: u and the branch of the MLP. Collective over tensor: two sums, and two in
  /// backward.
  ResidualStream forward(ResidualStream stream, const tensor::StepContext& context) override;

 private:
  ResidualStream attend(ResidualStream stream, const tensor::StepContext& context);
  ResidualStream run_mlp(ResidualStream stream, const tensor::StepContext& context);

  LayerNorm norm1_;
  Attention attention_;
  kernels::DropKey attention_path_;
  LayerNorm norm2_;
  Mlp mlp_;
  kernels::DropKey mlp_path_;
};

}  // namespace vit_hybrid::model
