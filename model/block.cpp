// Attention: linears around attend(); the MLP: two linears and what stands between them; and the residual structure
// around both.
#include "model/block.h"

#include <utility>

#include "model/recompute.h"
#include "src/base/text.h"
#include "src/kernels/attention/attend.h"

namespace vit_hybrid::model {

Attention::Attention(const VitOptions& options, int64_t unit, tensor::ParameterBuffer& buffer,
                     comm::Communicator& group, Recompute recompute)
    : recompute_(recompute),
      heads_(Partition(options.num_heads, group.size()).part(group.rank())),
      projection_drop_{options.dropout, unit, kernels::DropSite::kProjection},
      attention_drop_{options.attention_dropout, unit, kernels::DropSite::kAttention},
      qkv_(buffer, str("blocks.", unit - 1, ".attn.qkv"), tensor::Terms::kWeightAndBias, group),
      projection_(buffer, str("blocks.", unit - 1, ".attn.proj"), tensor::Terms::kWeightAndBias, group) {}

at::Tensor Attention::attend_heads(const at::Tensor& x, const tensor::StepContext& context) {
  const at::Tensor qkv = qkv_.forward(x, context);
  const kernels::AttentionDropout attention_dropout(attention_drop_, context, heads_.begin, x.size(1));
  const at::Tensor heads = kernels::attend(qkv, heads_.size(), attention_dropout);
  if (recompute_ != Recompute::kSelective) {
    return heads;
  }
  return recompute_in_backward(qkv, heads, [this, x, &context] { return qkv_.forward(x, context); });
}

Branch Attention::forward(const at::Tensor& x, const tensor::StepContext& context) {
  return {projection_.forward(attend_heads(x, context), context), projection_drop_};
}

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
  const bool is_fused =
      !hidden_drop_.drops(context) && fc2_.fuses_gelu_backward(x.numel() / options_.embed_dim, options_.gelu);
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
