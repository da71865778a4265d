// The choice of an attention kernel.
#include "model/attend.h"

#include "model/blocked_attention.h"
#include "model/fused_attention.h"
#include "model/masked_attention.h"
#include "parallel/tensor/small_product.h"

namespace vit_hybrid::model {

AttentionKernel choose_attention_kernel(const at::Tensor& qkv, const AttentionDropout& dropout) {
  if (!qkv.is_cpu()) {
    return dropout.active() ? AttentionKernel::kMasked : AttentionKernel::kFused;
  }
  // In fp32 with the block kernel, ours is also the faster one without dropout.
  const bool faster = qkv.scalar_type() == at::kFloat && tensor::has_block_kernel();
  return dropout.active() || faster ? AttentionKernel::kBlocked : AttentionKernel::kFused;
}

at::Tensor attend(const at::Tensor& qkv, int64_t num_heads, const AttentionDropout& dropout) {
  if (qkv.numel() == 0) {  // no samples: the products have nothing to multiply
    return qkv.narrow(2, 0, qkv.size(2) / 3);
  }
  switch (choose_attention_kernel(qkv, dropout)) {
    case AttentionKernel::kFused:
      return fused_attention(qkv, num_heads);
    case AttentionKernel::kBlocked:
      return blocked_attention(qkv, num_heads, dropout);
    case AttentionKernel::kMasked:
      return masked_attention(qkv, num_heads, dropout);
  }
  return {};
}

}  // namespace vit_hybrid::model
