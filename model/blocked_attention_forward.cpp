// Forward kernel of the blocked attention: softmax over the key blocks of a query block as they come.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "model/attention_rows.h"
#include "model/blocked_attention_kernels.h"
#include "parallel/tensor/small_product.h"
#include "src/base/memory_tracker.h"

namespace vit_hybrid::model {

namespace {

using tensor::small_product;
using tensor::Store;

// Every k transposed: [matrix][features][keys] with the keys of a block together.
template <class T>
at::Tensor transpose_keys(const AttentionExtents& extents, const at::Tensor& qkv) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const at::Tensor keys = at::empty({extents.matrices(), extents.head_dim * extents.tokens}, qkv.options());
  const Partition blocks = extents.key_blocks();
  at::parallel_for(0, extents.matrices() * blocks.parts(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t m = task / blocks.parts();
      const Range rows = blocks.part(task % blocks.parts());
      transpose_rows(qkv.const_data_ptr<T>() + extents.qkv_offset(m, 1), extents.qkv_stride(), rows, extents.head_dim,
                     keys.mutable_data_ptr<T>() + (m * extents.tokens + rows.begin) * extents.head_dim);
    }
  });
  return keys;
}

// One query block against all keys of its matrix.
template <class T>
class QueryBlock {
 public:
  QueryBlock(const AttentionExtents& extents, const AttentionDropout& dropout, const T* qkv, const T* keys_transposed)
      : extents_(extents), dropout_(dropout), qkv_(qkv), keys_(keys_transposed) {
    const auto queries = static_cast<size_t>(extents.query_blocks().largest());
    const auto keys = static_cast<size_t>(extents.key_blocks().largest());
    scores_.resize(queries * keys);
    sums_.resize(queries);
    maxima_.resize(queries);
    out_.resize(queries * static_cast<size_t>(extents.head_dim));
    keep_.resize(keys);
  }

  void run(int64_t matrix, Range queries, T* out, T* logsumexp) {
    std::fill(maxima_.begin(), maxima_.end(), -std::numeric_limits<T>::infinity());
    std::fill(sums_.begin(), sums_.end(), T(0));
    const Partition blocks = extents_.key_blocks();
    for (int64_t block = 0; block < blocks.parts(); ++block) {
      add_keys(matrix, queries, blocks.part(block));
    }
    store(matrix, queries, out, logsumexp);
  }

 private:
  void add_keys(int64_t matrix, Range queries, Range keys) {
    const int64_t dim = extents_.head_dim;
    const int64_t stride = extents_.qkv_stride();
    small_product({queries.size(), keys.size(), dim, stride, keys.size(), keys.size()}, Store::kOverwrite,
                  qkv_ + extents_.qkv_offset(matrix, 0) + queries.begin * stride,
                  keys_ + (matrix * extents_.tokens + keys.begin) * dim, scores_.data());
    for (int64_t row = 0; row < queries.size(); ++row) {
      to_weights(row, keys.size(), keys.begin == 0);
      drop(matrix, queries.begin + row, keys, scores_.data() + row * keys.size());
    }
    small_product({queries.size(), dim, keys.size(), keys.size(), stride, dim},
                  keys.begin == 0 ? Store::kOverwrite : Store::kAdd, scores_.data(),
                  qkv_ + extents_.qkv_offset(matrix, 2) + keys.begin * stride, out_.data());
  }

  // The scores of a row become exp(score - maximum so far); what came before is scaled to the new maximum.
  void to_weights(int64_t row, int64_t num_keys, bool first) {
    const auto scale = static_cast<T>(extents_.scale());
    T* const scores = scores_.data() + row * num_keys;
    T& maximum = maxima_[static_cast<size_t>(row)];
    T& sum = sums_[static_cast<size_t>(row)];
    const T larger = std::max(maximum, scale * row_max(scores, num_keys));
    const T weights = exponentials(scores, num_keys, scale, larger);
    if (!first && larger != maximum) {
      const T correction = std::exp(maximum - larger);
      sum *= correction;
      scale_row(out_.data() + row * extents_.head_dim, extents_.head_dim, correction);
    }
    sum += weights;
    maximum = larger;
  }

  // Dropout acts on the normalised weights, so that their sum is taken before.
  void drop(int64_t matrix, int64_t query, Range keys, T* weights) {
    if (!dropout_.active()) {
      return;
    }
    dropout_.fill_row(matrix / extents_.heads, matrix % extents_.heads, query, keys, keep_.data());
    mask_row(weights, keep_.data(), keys.size());
  }

  void store(int64_t matrix, Range queries, T* out, T* logsumexp) {
    const int64_t dim = extents_.head_dim;
    const auto kept_scale = static_cast<T>(dropout_.active() ? dropout_.kept_scale() : 1.0);
    for (int64_t row = 0; row < queries.size(); ++row) {
      const T sum = sums_[static_cast<size_t>(row)];
      const T factor = kept_scale / sum;
      T* const to = out + extents_.out_offset(matrix) + (queries.begin + row) * extents_.width();
      for (int64_t feature = 0; feature < dim; ++feature) {
        to[feature] = factor * out_[static_cast<size_t>(row * dim + feature)];
      }
      logsumexp[matrix * extents_.tokens + queries.begin + row] = maxima_[static_cast<size_t>(row)] + std::log(sum);
    }
  }

  const AttentionExtents& extents_;
  const AttentionDropout& dropout_;
  const T* qkv_;
  const T* keys_;
  std::vector<T> scores_;
  std::vector<T> maxima_;
  std::vector<T> sums_;
  std::vector<T> out_;
  std::vector<uint8_t> keep_;
};

template <class T>
void run_forward(const AttentionExtents& extents, const AttentionDropout& dropout, const at::Tensor& qkv,
                 const at::Tensor& out, const at::Tensor& logsumexp) {
  const at::Tensor keys = transpose_keys<T>(extents, qkv);
  const Partition blocks = extents.query_blocks();
  at::parallel_for(0, extents.matrices() * blocks.parts(), 1, [&](int64_t begin, int64_t end) {
    QueryBlock<T> block(extents, dropout, qkv.const_data_ptr<T>(), keys.const_data_ptr<T>());
    for (int64_t task = begin; task < end; ++task) {
      block.run(task / blocks.parts(), blocks.part(task % blocks.parts()), out.mutable_data_ptr<T>(),
                logsumexp.mutable_data_ptr<T>());
    }
    tensor::finish_small_products();
  });
}

}  // namespace

void attention_forward(const AttentionExtents& extents, const AttentionDropout& dropout, const at::Tensor& qkv,
                       const at::Tensor& out, const at::Tensor& logsumexp) {
  AT_DISPATCH_FLOATING_TYPES(qkv.scalar_type(), "attention_forward",
                             [&] { run_forward<scalar_t>(extents, dropout, qkv, out, logsumexp); });
}

}  // namespace vit_hybrid::model
