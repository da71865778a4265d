// The residual structure of a block.
#include "model/block.h"

#include "src/base/text.h"

namespace vit_hybrid::model {

namespace {

// A linear ramp: 0 in the first block, the whole rate in the last.
double path_rate(const VitOptions& options, int64_t unit) {
  if (options.depth == 1) {
    return 0.0;
  }
  return options.drop_path * static_cast<double>(unit - 1) / static_cast<double>(options.depth - 1);
}

}  // namespace

Block::Block(const VitOptions& options, int64_t unit, tensor::ParameterBuffer& buffer, comm::Communicator& group)
    : norm1_(buffer, str("blocks.", unit - 1, ".norm1"), options.norm_eps),
      attention_(options, unit, buffer, group),
      attention_path_{path_rate(options, unit), unit, DropSite::kAttentionPath},
      norm2_(buffer, str("blocks.", unit - 1, ".norm2"), options.norm_eps),
      mlp_(options, unit, buffer, group),
      mlp_path_{path_rate(options, unit), unit, DropSite::kMlpPath} {}

at::Tensor Block::forward(const at::Tensor& x, const tensor::StepContext& context) {
  const at::Tensor u =
      add_residual(x, attention_.forward(norm1_.forward(x, context), context), attention_path_, context);
  return add_residual(u, mlp_.forward(norm2_.forward(u, context), context), mlp_path_, context);
}

}  // namespace vit_hybrid::model
