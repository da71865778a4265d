// Block: the residual structure around attention and MLP.
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

AttentionSublayer::AttentionSublayer(const VitOptions& options, int64_t unit, tensor::ParameterBuffer& buffer,
                                     comm::Communicator& group, Recompute recompute)
    : norm_(buffer, str("blocks.", unit - 1, ".norm1"), options.norm_eps),
      attention_(options, unit, buffer, group, recompute),
      path_{path_rate(options, unit), unit, kernels::DropSite::kAttentionPath} {}

ResidualStream AttentionSublayer::forward(ResidualStream stream, const tensor::StepContext& context) {
  const auto [z, normed_z] = norm_.fork(std::move(stream), context);
  return {z, attention_.forward(normed_z, context), path_};
}

MlpSublayer::MlpSublayer(const VitOptions& options, int64_t unit, tensor::ParameterBuffer& buffer,
                         comm::Communicator& group, Recompute recompute)
    : norm_(buffer, str("blocks.", unit - 1, ".norm2"), options.norm_eps),
      mlp_(options, unit, buffer, group, mlp_keep(recompute)),
      path_{path_rate(options, unit), unit, kernels::DropSite::kMlpPath} {}

ResidualStream MlpSublayer::forward(ResidualStream stream, const tensor::StepContext& context) {
  const auto [u, normed_u] = norm_.fork(std::move(stream), context);
  return {u, mlp_.forward(normed_u, context), path_};
}

Layers make_block(const VitOptions& options, int64_t unit, tensor::ParameterBuffer& buffer, comm::Communicator& group,
                  Recompute recompute) {
  Layers layers;
  layers.push_back(std::make_unique<AttentionSublayer>(options, unit, buffer, group, recompute));
  layers.push_back(std::make_unique<MlpSublayer>(options, unit, buffer, group, recompute));
  return layers;
}

}  // namespace vit_hybrid::model
