// Keyed masks of attention weights, drawn on the device; in programs without CUDA there is no device to draw on.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "src/base/partition.h"
#include "src/base/random.h"

namespace vit_hybrid::kernels {

/// What AttentionDropout draws from, for the heads [first_head, first_head + num_heads) of the whole model.
struct AttentionMaskKey {
  const RandomStream& stream;
  uint32_t threshold;
  const std::vector<int64_t>& samples;
  int64_t first_head;
  int64_t num_heads;
  int64_t num_tokens;
};

/// Bytes [B, h, Q, K] on `device`: 1 where the weight is kept, else 0; the same as AttentionDropout::fill_row().
at::Tensor device_attention_mask(const AttentionMaskKey& key, Range queries, Range keys, c10::Device device);

}  // namespace vit_hybrid::kernels
