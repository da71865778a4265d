// The two linears of the MLP and what stands between and after them.
#include "model/mlp.h"

#include "model/recompute.h"
#include "src/base/text.h"

namespace vit_hybrid::model {

Mlp::Mlp(const VitOptions& options, int64_t unit, tensor::ParameterBuffer& buffer, comm::Communicator& group,
         tensor::Keep keep)
    : options_(options),
      hidden_(Partition(options.mlp_hidden, group.size()).part(group.rank())),
      hidden_drop_{options.dropout, unit, kernels::DropSite::kHidden},
      output_drop_{options.dropout, unit, kernels::DropSite::kOutput},
      keep_(keep),
      fc1_(buffer, str("blocks.", unit - 1, ".mlp.fc1"), tensor::Terms::kWeightAndBias, group),
      fc2_(buffer, str("blocks.", unit - 1, ".mlp.fc2"), tensor::Terms::kWeightAndBias, group) {}

Branch Mlp::forward(const at::Tensor& x, const tensor::StepContext& context) {
  const bool drops_hidden = context.training() && hidden_drop_.rate > 0.0;
  const bool is_fused = !drops_hidden && fc2_.fuses_gelu_backward(x.numel() / options_.embed_dim, options_.gelu);
  return {is_fused ? forward_with_fused_gelu(x, context) : forward_with_own_gelu(x, context), output_drop_};
}

tensor::RegionSum Mlp::forward_with_own_gelu(const at::Tensor& x, const tensor::StepContext& context) {
  // In one expression: what dropout has read is gone before fc2 runs.
  const at::Tensor kept = kernels::dropout(fc1_.forward_gelu(x, options_.gelu, context, keep_), hidden_,
                                           options_.mlp_hidden, hidden_drop_, context);
  return fc2_.forward(kept, context);
}

tensor::RegionSum Mlp::forward_with_fused_gelu(const at::Tensor& x, const tensor::StepContext& context) {
  const tensor::PreActivation hidden = fc1_.forward_beside_gelu(x, options_.gelu, context);
  tensor::RegionSum sum = fc2_.forward_of_gelu(hidden, options_.gelu, context);
  if (keep_ == tensor::Keep::kInputOnly) {
    sum.y = recompute_in_backward(hidden.z, sum.y, [this, x] { return fc1_.pre_activation(x, options_.gelu); });
  }
  return sum;
}

}  // namespace vit_hybrid::model
