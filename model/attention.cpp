// Self-attention: linears around attend().
#include "model/attention.h"

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

}  // namespace vit_hybrid::model
