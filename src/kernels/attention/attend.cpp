// The choice of an attention kernel.
#include "src/kernels/attention/attend.h"

#include "src/kernels/attention/blocked_attention.h"
#include "src/kernels/attention/device_attention.h"
#include "src/kernels/attention/fused_attention.h"
#include "src/kernels/attention/masked_attention.h"
#include "src/kernels/gemm/small_product.h"

namespace vit_hybrid::kernels {

namespace {

bool is_half_length(at::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf;
}

// What ours multiplies with on the host.
std::string product_text(at::ScalarType type) {
  if (type == at::kDouble) {
    return "BLAS";
  }
  if (type == at::kBFloat16 && has_bf16_block_kernel()) {
    return "oneDNN's block kernel in bf16, with exponentials and statistics in fp32";
  }
  const std::string product = has_block_kernel() ? "oneDNN's block kernel in fp32" : "BLAS in fp32";
  return is_half_length(type) ? product + ", with conversions" : product;
}

std::string why_converted(at::ScalarType type) {
  if (type == at::kHalf) {
    return "; fp16 is not multiplied as such on processors";
  }
  const std::string why = type == at::kBFloat16 ? why_no_bf16_block_kernel() : "";
  return why.empty() ? why : "; " + why;
}

std::string host_text(at::ScalarType type, bool with_dropout) {
  if (choose_attention_kernel(at::kCPU, type, with_dropout) == AttentionKernel::kFused) {
    return std::string("LibTorch's flash attention: ours is faster only with oneDNN's block kernel, which ") +
           (type == at::kDouble ? "has no fp64" : "this processor or LibTorch does not have");
  }
  return "ours, in blocks of queries and keys around " + product_text(type) +
         (with_dropout ? ": it draws the keyed mask of dropout" : ": faster than LibTorch's") + why_converted(type);
}

}  // namespace

AttentionKernel choose_attention_kernel(c10::Device device, at::ScalarType type, bool with_dropout) {
  if (!device.is_cpu()) {
    return with_dropout ? AttentionKernel::kMasked : AttentionKernel::kFused;
  }
  // With a block kernel ours is the faster one without dropout too, in half-length types also where it converts them.
  const bool faster = type != at::kDouble && has_block_kernel();
  return with_dropout || faster ? AttentionKernel::kBlocked : AttentionKernel::kFused;
}

std::string attention_kernel_text(c10::Device device, at::ScalarType type, bool with_dropout) {
  if (device.is_cpu()) {
    return host_text(type, with_dropout);
  }
  if (!with_dropout) {
    return device_attention_text(device, type);
  }
  return std::string("ours, from LibTorch's products over blocks of queries") +
         (is_half_length(type) ? ", in fp32" : "") +
         ": it draws the keyed mask of dropout; several times slower than without attention dropout";
}

at::Tensor attend(const at::Tensor& qkv, int64_t num_heads, const AttentionDropout& dropout) {
  if (qkv.numel() == 0) {  // no samples: the products have nothing to multiply
    return qkv.narrow(2, 0, qkv.size(2) / 3);
  }
  switch (choose_attention_kernel(qkv.device(), qkv.scalar_type(), dropout.active())) {
    case AttentionKernel::kFused:
      return fused_attention(qkv, num_heads);
    case AttentionKernel::kBlocked:
      return blocked_attention(qkv, num_heads, dropout);
    case AttentionKernel::kMasked:
      return masked_attention(qkv, num_heads, dropout);
  }
  return {};
}

}  // namespace vit_hybrid::kernels
