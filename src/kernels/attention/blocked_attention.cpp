// blocked_attention(): types, allocation and the autograd node.
#include "src/kernels/attention/blocked_attention.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>

#include <optional>

#include "src/base/memory_tracker.h"
#include "src/kernels/attention/blocked_attention_kernels.h"
#include "src/kernels/own_node.h"

namespace vit_hybrid::kernels {

namespace {

AttentionExtents extents_of(const at::Tensor& qkv, int64_t num_heads) {
  return {qkv.size(0), qkv.size(1), num_heads, qkv.size(2) / (3 * num_heads)};
}

// Half-length types for which there is no product are computed in fp32, which costs the conversions.
at::ScalarType kernel_type(at::ScalarType type) {
  const bool converted = type == at::kHalf || (type == at::kBFloat16 && !has_bf16_block_kernel());
  return converted ? at::kFloat : type;
}

// A copy in the type of the kernel, or x itself.
at::Tensor kernel_operand(const at::Tensor& x) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  return x.to(kernel_type(x.scalar_type())).contiguous();
}

// For a result of `type`: where that is converted, a workspace in the type of the kernel.
at::Tensor kernel_result(at::IntArrayRef shape, at::ScalarType type) {
  const at::ScalarType computed = kernel_type(type);
  std::optional<MemoryScope> scope;
  if (computed != type) {
    scope.emplace(MemoryClass::kWorkspaces);
  }
  return at::empty(shape, computed);
}

#define VH_DISPATCH_KERNEL_TYPE(TYPE, ...) \
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, TYPE, "blocked_attention", __VA_ARGS__)

// The result, in the type of qkv, and the logsumexp, in that of the statistics.
std::array<at::Tensor, 2> forward(const at::Tensor& qkv, int64_t num_heads, const AttentionDropout& dropout) {
  const AttentionExtents extents = extents_of(qkv, num_heads);
  const at::Tensor input = kernel_operand(qkv);
  const at::Tensor out = kernel_result({extents.samples, extents.tokens, extents.width()}, qkv.scalar_type());
  const auto statistics = qkv.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor logsumexp = at::empty({extents.matrices(), extents.tokens}, input.options().dtype(statistics));
  VH_DISPATCH_KERNEL_TYPE(input.scalar_type(), [&] {
    attention_forward<scalar_t>({extents, dropout, input.const_data_ptr<scalar_t>()}, out.mutable_data_ptr<scalar_t>(),
                                logsumexp.mutable_data_ptr<ComputeType<scalar_t>>());
  });
  return {out.to(qkv.scalar_type()), logsumexp};
}

at::Tensor backward(const at::Tensor& qkv, int64_t num_heads, const AttentionDropout& dropout,
                    const std::array<at::Tensor, 2>& results, const at::Tensor& dout_given) {
  const AttentionExtents extents = extents_of(qkv, num_heads);
  at::Tensor input = kernel_operand(qkv);
  at::Tensor out = kernel_operand(results[0]);
  at::Tensor dout = kernel_operand(dout_given);
  const at::Tensor dqkv = kernel_result(qkv.sizes(), qkv.scalar_type());
  VH_DISPATCH_KERNEL_TYPE(input.scalar_type(), [&] {
    attention_backward<scalar_t>({extents, dropout, input.const_data_ptr<scalar_t>()}, out.const_data_ptr<scalar_t>(),
                                 results[1].const_data_ptr<ComputeType<scalar_t>>(), dout.const_data_ptr<scalar_t>(),
                                 dqkv.mutable_data_ptr<scalar_t>());
  });
  input = out = dout = at::Tensor();  // before there is another copy
  return dqkv.to(qkv.scalar_type());
}

#undef VH_DISPATCH_KERNEL_TYPE

}  // namespace

at::Tensor blocked_attention(const at::Tensor& qkv, int64_t num_heads, const AttentionDropout& dropout) {
  const auto results = without_grad([&] { return forward(qkv, num_heads, dropout); });
  return record("blocked_attention", results[0], {qkv}, [=](const at::Tensor& dout) {
    return std::vector<at::Tensor>{backward(qkv, num_heads, dropout, results, dout)};
  });
}

}  // namespace vit_hybrid::kernels
