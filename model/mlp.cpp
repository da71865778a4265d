// The two linears of the MLP and what stands between and after them.
#include "model/mlp.h"

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

at::Tensor Mlp::forward(const at::Tensor& x, const tensor::StepContext& context) {
  // In one expression: what dropout has read is gone before fc2 runs.
  const at::Tensor kept =
      kernels::dropout(fc1_.forward_gelu(x, context, keep_), hidden_, options_.mlp_hidden, hidden_drop_, context);
  const int64_t dim = options_.embed_dim;
  return kernels::dropout(fc2_.forward(kept, context), {0, dim}, dim, output_drop_, context);
}

}  // namespace vit_hybrid::model
