// Element-wise kernels over samples on plain arrays of a GPU. Each launch is asynchronous on `stream`.
#pragma once

#include <cstdint>

#include "src/kernels/sample_passes.h"

struct CUstream_st;  // cudaStream_t points to it

namespace vit_hybrid::kernels {

/// Numbers of samples, passed to a kernel by value: nothing is copied to the device before.
struct SampleNumbers {
  static constexpr int kMost = 256;
  int64_t numbers[kMost];
  int count;
};

/// scaled_sum_share() of `samples` samples. float, double, BFloat16 and Half.
template <class T>
void launch_scaled_sum(const ScaledSum<T>& sum, int64_t samples, CUstream_st* stream);

/// scales[n] = keep_scale where the draw with the number of sample n is kept, else 0. F: float or double.
template <class F>
void launch_path_scales(const DrawStream& draws, const SampleNumbers& samples, double keep_scale, F* scales,
                        CUstream_st* stream);

/// dropout_share() of some samples; the arrays of `pass` begin with the first of them.
template <class T>
void launch_dropout(const DropoutPass<T>& pass, const SampleNumbers& samples, CUstream_st* stream);

/// A block of a keyed attention mask: keep[n, h, q, k] for queries [first_query, + queries) and keys [first_key, +
/// keys) of `tokens`; the draw is ((first_head + h) tokens + query) tokens + key.
struct AttentionMask {
  DrawStream stream;
  int64_t first_head;
  int64_t heads;
  int64_t tokens;
  int64_t first_query;
  int64_t queries;
  int64_t first_key;
  int64_t keys;
  uint8_t* keep;

  /// First draw of row (n, h, q), flat.
  VH_HOST_DEVICE uint64_t first_draw(int64_t row) const {
    const int64_t head = first_head + row / queries % heads;
    return static_cast<uint64_t>((head * tokens + first_query + row % queries) * tokens + first_key);
  }
};
void launch_attention_mask(const AttentionMask& mask, const SampleNumbers& samples, CUstream_st* stream);

}  // namespace vit_hybrid::kernels
