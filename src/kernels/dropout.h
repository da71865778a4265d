// Dropout (of features and of attention weights), stochastic depth and residual sums of tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "src/base/partition.h"
#include "src/base/random.h"

namespace vit_hybrid::kernels {

/// Where in a unit something is dropped; with the unit's number it keys the stream of draws.
enum class DropSite : uint64_t {
  kPositions,
  kProjection,
  kHidden,
  kOutput,
  kAttention,
  kAttentionPath,
  kMlpPath,
};

/// What a site draws from: the rate in [0, 1), and (unit, site) as the key beside seed and step.
struct DropKey {
  double rate = 0.0;
  int64_t unit = 0;
  DropSite site = DropSite::kPositions;

  /// Whether anything may be dropped here.
  bool drops(const SampleContext& context) const { return context.training() && rate > 0.0; }
  /// The stream of this site in the step of `context`.
  RandomStream stream(Purpose purpose, const SampleContext& context) const;
};

/// What a site keeps of the samples of one step: a draw that is at least `threshold`, times `keep_scale`.
struct KeyedDrop {
  /// Of the samples of `context`.
  KeyedDrop(const DropKey& key, Purpose purpose, const SampleContext& context);

  RandomStream stream;
  uint32_t threshold;
  double keep_scale;  ///< 1 / (1 - rate)
  const std::vector<int64_t>& samples;
};

/// A draw of 32 uniform bits is kept if it is at least this: floor(rate 2^32), rate below 1.
uint32_t drop_threshold(double rate);

/// keep[i] = 1 if draw first + i of the sample is kept, else 0, for i in [0, count).
void fill_keep_row(const RandomStream& stream, uint32_t threshold, uint64_t sample, uint64_t first, int64_t count,
                   uint8_t* keep);

/// Features [features.begin, features.end) of `num_features` in the global tensor: element (token, f) of a sample has
/// draw token * num_features + f.
struct DrawPlaces {
  Range features;
  int64_t num_features = 0;
};

struct Dropped {
  at::Tensor y;
  at::Tensor keep;  ///< bytes, 1 or 0, for backward; undefined on devices, which draw again
};

/// keep_scale x where the draw of an element is kept, else 0 x; x [B, N, F_r], contiguous. Half-length types: in fp32,
/// rounded once.
Dropped drop_features(const at::Tensor& x, const KeyedDrop& drop, const DrawPlaces& places);

/// The gradient of x from that of y, contiguous.
at::Tensor drop_features_backward(const at::Tensor& dy, const at::Tensor& keep, const KeyedDrop& drop,
                                  const DrawPlaces& places);

/// What the branches of the samples of x [B, ...] are multiplied with, from draw 0 of each: keep_scale or 0; [B], fp32
/// (fp64 for fp64), on the device of x. Undefined where nothing is dropped: in evaluation or at rate 0.
at::Tensor path_scales(const at::Tensor& x, const DropKey& key, const SampleContext& context);

/// Drops features of x [B, N, F_r], the features `features` of `num_features` in the global tensor, and divides what is
/// kept by 1 - rate (N. Srivastava et al., JMLR 15, 2014). Element (n, token, f) is kept by draw token * num_features +
/// f of sample n. x itself in evaluation or at rate 0. The graph keeps a byte an element on the host.
at::Tensor dropout(const at::Tensor& x, Range features, int64_t num_features, const DropKey& key,
                   const SampleContext& context);

/// residual + branch, where the branch of a sample is dropped with the key's rate and divided by 1 - rate if kept
/// (stochastic depth: G. Huang et al., ECCV 2016). Both [B, N, D]. `branch` must be a fresh tensor: the sum is written
/// over it, rounded once.
at::Tensor add_residual(const at::Tensor& residual, const at::Tensor& branch, const DropKey& key,
                        const SampleContext& context);

/// residual + scales[n] branch for each sample n, in fp32 (fp64 for fp64) and rounded once, written over `branch`. Both
/// [B, ...], contiguous, of one type; scales [B], fp32 (fp64 for fp64), or undefined: 1.
at::Tensor residual_sum(const at::Tensor& residual, const at::Tensor& branch, const at::Tensor& scales);

/// scales[n] x for each sample n, a new tensor.
at::Tensor scale_samples(const at::Tensor& x, const at::Tensor& scales);

/// The gradient of the branch from that of the sum: the same tensor where nothing is scaled.
at::Tensor branch_gradient(const at::Tensor& dsum, const at::Tensor& scales);

/// The rows of all samples, and the factors of their branches on the host.
template <class F>
class SampleScales {
 public:
  /// `x` [B, ...] of `rows` rows; scales as above.
  SampleScales(const at::Tensor& scales, const at::Tensor& x, int64_t rows)
      : scales_(scales.defined() ? scales.const_data_ptr<F>() : nullptr),
        rows_of_sample_(x.size(0) > 0 ? rows / x.size(0) : 1) {}
  F of_row(int64_t row) const { return scales_ == nullptr ? F(1) : scales_[row / rows_of_sample_]; }

 private:
  const F* scales_;
  int64_t rows_of_sample_;
};

// For tensors that are not on the host, which the functions above call; in programs without CUDA there are none.
// Nothing here waits for the device.

at::Tensor device_residual_sum(const at::Tensor& residual, const at::Tensor& branch, const at::Tensor& scales);
at::Tensor device_scale_samples(const at::Tensor& x, const at::Tensor& scales);

at::Tensor device_path_scales(const KeyedDrop& drop, const at::TensorOptions& options);
/// `keep` comes back undefined: the gradient of x is drawn again, by the same call on dy.
Dropped device_dropout(const at::Tensor& x, const KeyedDrop& drop, const DrawPlaces& places);

// Attention dropout: which attention weights are dropped, by global indices.

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
