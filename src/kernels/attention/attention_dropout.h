// AttentionDropout: which attention weights are dropped, by global indices.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "src/base/partition.h"
#include "src/base/random.h"
#include "src/kernels/dropout.h"

namespace vit_hybrid::kernels {

/// The weight of (sample, head, query, key) is kept by draw (head N + query) N + key of the sample's stream; heads are
/// those of the whole model. A value: copied into the graph, where backward makes the same mask again.
class AttentionDropout {
 public:
  /// Drops nothing.
  AttentionDropout() = default;
  /// For the samples and the step of `context`; `first_head` is the global number of this rank's first head.
  AttentionDropout(const DropKey& key, const SampleContext& context, int64_t first_head, int64_t num_tokens);

  bool active() const { return threshold_ > 0; }
  /// What a kept weight is multiplied by.
  double kept_scale() const { return kept_scale_; }

  /// keep[i] = 1 or 0 for one query and the keys of `keys`, of sample `row` of the micro-batch and local head `head`.
  void fill_row(int64_t row, int64_t head, int64_t query, Range keys, uint8_t* keep) const;
  /// The same of all samples, `num_heads` heads, the queries `queries` and all keys: uint8 [B, h, Q, N], drawn on
  /// `device`.
  at::Tensor keep_block(int64_t num_heads, Range queries, c10::Device device) const;

 private:
  RandomStream stream_{0, Purpose::kAttentionDropout};
  uint32_t threshold_ = 0;
  double kept_scale_ = 1.0;
  int64_t first_head_ = 0;
  int64_t num_tokens_ = 0;
  std::vector<int64_t> samples_;
};

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
