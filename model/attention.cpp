// Self-attention: linears around the fused kernel.
#include "model/attention.h"

#include "model/fused_attention.h"
#include "src/base/partition.h"

namespace vit_hybrid::model {

namespace {

std::string parameter_name(int64_t unit, const char* name) {
  return str("blocks.", unit - 1, ".attn.", name);
}

}  // namespace

Attention::Attention(const VitOptions& options, int64_t unit, tensor::ParameterBuffer& buffer,
                     comm::Communicator& group)
    : options_(options),
      heads_(Partition(options.num_heads, group.size()).part(group.rank())),
      projection_drop_{options.dropout, unit, DropSite::kProjection},
      attention_drop_{options.attention_dropout, unit, DropSite::kAttention},
      qkv_(buffer.parameter(parameter_name(unit, "qkv.weight")), &buffer.parameter(parameter_name(unit, "qkv.bias")),
           group),
      projection_(buffer.parameter(parameter_name(unit, "proj.weight")),
                  &buffer.parameter(parameter_name(unit, "proj.bias")), group) {}

at::Tensor Attention::forward(const at::Tensor& x, const tensor::StepContext& context) const {
  const at::Tensor qkv = qkv_.forward(x, context);
  const at::Tensor heads = fused_attention(qkv, heads_.size());
  const int64_t dim = options_.embed_dim;
  return dropout(projection_.forward(heads, context), {0, dim}, dim, projection_drop_, context);
}

}  // namespace vit_hybrid::model
