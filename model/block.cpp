// The residual structure of a block.
#include "model/block.h"

#include <utility>

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

tensor::Keep mlp_keep(Recompute recompute) {
  return recompute == Recompute::kSelective ? tensor::Keep::kInputOnly : tensor::Keep::kPreActivation;
}

}  // namespace

Block::Block(const VitOptions& options, int64_t unit, tensor::ParameterBuffer& buffer, comm::Communicator& group,
             Recompute recompute)
    : norm1_(buffer, str("blocks.", unit - 1, ".norm1"), options.norm_eps),
      attention_(options, unit, buffer, group, recompute),
      attention_path_{path_rate(options, unit), unit, kernels::DropSite::kAttentionPath},
      norm2_(buffer, str("blocks.", unit - 1, ".norm2"), options.norm_eps),
      mlp_(options, unit, buffer, group, mlp_keep(recompute)),
      mlp_path_{path_rate(options, unit), unit, kernels::DropSite::kMlpPath} {}

ResidualStream Block::attend(ResidualStream stream, const tensor::StepContext& context) {
  const auto [z, normed_z] = norm1_.fork(std::move(stream), context);
  return {z, attention_.forward(normed_z, context), attention_path_};
}

ResidualStream Block::run_mlp(ResidualStream stream, const tensor::StepContext& context) {
  const auto [u, normed_u] = norm2_.fork(std::move(stream), context);
  return {u, mlp_.forward(normed_u, context), mlp_path_};
}

ResidualStream Block::forward(ResidualStream stream, const tensor::StepContext& context) {
  return run_mlp(attend(std::move(stream), context), context);
}

}  // namespace vit_hybrid::model
