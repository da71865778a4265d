// Backward kernel of the blocked attention. Scores are computed transposed, keys by queries, so that each of the five
// products finds its operands as they lie: dv += p^T do and dk += ds^T q with p^T and ds^T as left operands, and dq,
// kept transposed until the end, dq^T += k^T ds^T with ds^T as the right one.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "model/attention_rows.h"
#include "model/blocked_attention_kernels.h"
#include "parallel/tensor/small_product.h"
#include "src/base/memory_tracker.h"

namespace vit_hybrid::model {

namespace {

using tensor::small_product;
using tensor::Store;

// Keys of a task: a task owns dk and dv of its keys; dq is summed over the tasks of a matrix, in their order.
constexpr int64_t kKeyBlocksOfTask = 2;

template <class T>
struct Operands {
  const T* qkv;
  const T* dout;
  const T* logsumexp;
  const T* queries_transposed;  ///< [matrix][query block][features][queries]
  const T* dout_transposed;     ///< the same
  const T* keys_transposed;     ///< [matrix][key block][features][keys]
  const T* delta;               ///< [matrix][queries]: sum over the features of dout out
};

// The workspaces that all tasks read, made in one pass over the operands.
template <class T>
struct Prepared {
  Prepared(const AttentionExtents& extents, const at::Tensor& qkv, const at::Tensor& out, const at::Tensor& dout);

  at::Tensor queries;
  at::Tensor dout;
  at::Tensor keys;
  at::Tensor delta;
};

template <class T>
void sum_products(const AttentionExtents& extents, int64_t matrix, const T* out, const T* dout, T* delta) {
  for (int64_t row = 0; row < extents.tokens; ++row) {
    const int64_t offset = extents.out_offset(matrix) + row * extents.width();
    T sum = 0;
    for (int64_t feature = 0; feature < extents.head_dim; ++feature) {
      sum += out[offset + feature] * dout[offset + feature];
    }
    delta[matrix * extents.tokens + row] = sum;
  }
}

// All blocks of one matrix [tokens, head_dim], each transposed.
template <class T>
void transpose_blocks(const AttentionExtents& extents, const Partition& blocks, int64_t matrix, const T* from,
                      int64_t stride, T* to) {
  for (int64_t block = 0; block < blocks.parts(); ++block) {
    const Range rows = blocks.part(block);
    transpose_rows(from, stride, rows, extents.head_dim,
                   to + (matrix * extents.tokens + rows.begin) * extents.head_dim);
  }
}

template <class T>
Prepared<T>::Prepared(const AttentionExtents& extents, const at::Tensor& qkv, const at::Tensor& out,
                      const at::Tensor& dout_given)
    : queries(at::empty({extents.matrices(), extents.tokens * extents.head_dim}, qkv.options())),
      dout(at::empty(queries.sizes(), qkv.options())),
      keys(at::empty(queries.sizes(), qkv.options())),
      delta(at::empty({extents.matrices(), extents.tokens}, qkv.options())) {
  at::parallel_for(0, extents.matrices(), 1, [&](int64_t begin, int64_t end) {
    const T* const from = qkv.const_data_ptr<T>();
    const T* const dout_data = dout_given.const_data_ptr<T>();
    for (int64_t m = begin; m < end; ++m) {
      transpose_blocks(extents, extents.query_blocks(), m, from + extents.qkv_offset(m, 0), extents.qkv_stride(),
                       queries.mutable_data_ptr<T>());
      transpose_blocks(extents, extents.key_blocks(), m, from + extents.qkv_offset(m, 1), extents.qkv_stride(),
                       keys.mutable_data_ptr<T>());
      transpose_blocks(extents, extents.query_blocks(), m, dout_data + extents.out_offset(m), extents.width(),
                       dout.mutable_data_ptr<T>());
      sum_products(extents, m, out.const_data_ptr<T>(), dout_data, delta.mutable_data_ptr<T>());
    }
  });
}

// Some keys of one matrix against all its queries: their dk and dv, and their part of dq.
template <class T>
class KeyTask {
 public:
  KeyTask(const AttentionExtents& extents, const AttentionDropout& dropout, const Operands<T>& operands)
      : extents_(extents), dropout_(dropout), operands_(operands) {
    const auto queries = static_cast<size_t>(extents.query_blocks().largest());
    const auto keys = static_cast<size_t>(extents.key_blocks().largest());
    weights_.resize(keys * queries);
    gradients_.resize(keys * queries);
    keep_.resize(dropout.active() ? keys * queries : 0);
    keep_row_.resize(dropout.active() ? keys : 0);
  }

  // `dq` [features, queries] of each query block in turn is overwritten.
  void run(int64_t matrix, Range key_blocks, T* dq, T* dqkv) {
    const Partition query_blocks = extents_.query_blocks();
    for (int64_t i = 0; i < query_blocks.parts(); ++i) {
      const Range queries = query_blocks.part(i);
      for (int64_t j = key_blocks.begin; j < key_blocks.end; ++j) {
        const Range keys = extents_.key_blocks().part(j);
        compute_weights(matrix, queries, keys);
        add_key_gradients(matrix, queries, keys, dqkv);
        small_product({extents_.head_dim, queries.size(), keys.size(), keys.size(), queries.size(), queries.size()},
                      j == key_blocks.begin ? Store::kOverwrite : Store::kAdd,
                      operands_.keys_transposed + block_offset(matrix, keys), gradients_.data(),
                      dq + queries.begin * extents_.head_dim);
      }
    }
  }

 private:
  int64_t block_offset(int64_t matrix, Range rows) const {
    return (matrix * extents_.tokens + rows.begin) * extents_.head_dim;
  }

  // weights_ <- p^T (dropped), gradients_ <- ds^T, both [keys, queries].
  void compute_weights(int64_t matrix, Range queries, Range keys) {
    const int64_t stride = extents_.qkv_stride();
    const int64_t columns = queries.size();
    const tensor::ProductShape shape{keys.size(), columns, extents_.head_dim, stride, columns, columns};
    small_product(shape, Store::kOverwrite, operands_.qkv + extents_.qkv_offset(matrix, 1) + keys.begin * stride,
                  operands_.queries_transposed + block_offset(matrix, queries), weights_.data());
    small_product(shape, Store::kOverwrite, operands_.qkv + extents_.qkv_offset(matrix, 2) + keys.begin * stride,
                  operands_.dout_transposed + block_offset(matrix, queries), gradients_.data());
    fill_keep(matrix, queries, keys);
    const int64_t first = matrix * extents_.tokens + queries.begin;
    for (int64_t key = 0; key < keys.size(); ++key) {
      differentiate(key * columns, columns, operands_.logsumexp + first, operands_.delta + first);
    }
  }

  void differentiate(int64_t offset, int64_t count, const T* logsumexp, const T* delta) {
    const auto scale = static_cast<T>(extents_.scale());
    T* const weights = weights_.data() + offset;
    T* const gradients = gradients_.data() + offset;
    if (dropout_.active()) {
      backward_row(weights, gradients, logsumexp, delta, keep_.data() + offset, static_cast<T>(dropout_.kept_scale()),
                   count, scale);
    } else {
      backward_row(weights, gradients, logsumexp, delta, count, scale);
    }
  }

  // The mask of the block, transposed to [keys, queries]; a draw's neighbours are those of the next keys.
  void fill_keep(int64_t matrix, Range queries, Range keys) {
    if (!dropout_.active()) {
      return;
    }
    for (int64_t column = 0; column < queries.size(); ++column) {
      dropout_.fill_row(matrix / extents_.heads, matrix % extents_.heads, queries.begin + column, keys,
                        keep_row_.data());
      for (int64_t row = 0; row < keys.size(); ++row) {
        keep_[static_cast<size_t>(row * queries.size() + column)] = keep_row_[static_cast<size_t>(row)];
      }
    }
  }

  void add_key_gradients(int64_t matrix, Range queries, Range keys, T* dqkv) {
    const int64_t stride = extents_.qkv_stride();
    const int64_t dim = extents_.head_dim;
    const Store store = queries.begin == 0 ? Store::kOverwrite : Store::kAdd;
    small_product({keys.size(), dim, queries.size(), queries.size(), extents_.width(), stride}, store, weights_.data(),
                  operands_.dout + extents_.out_offset(matrix) + queries.begin * extents_.width(),
                  dqkv + extents_.qkv_offset(matrix, 2) + keys.begin * stride);
    small_product({keys.size(), dim, queries.size(), queries.size(), stride, stride}, store, gradients_.data(),
                  operands_.qkv + extents_.qkv_offset(matrix, 0) + queries.begin * stride,
                  dqkv + extents_.qkv_offset(matrix, 1) + keys.begin * stride);
  }

  const AttentionExtents& extents_;
  const AttentionDropout& dropout_;
  const Operands<T>& operands_;
  std::vector<T> weights_;
  std::vector<T> gradients_;
  std::vector<uint8_t> keep_;
  std::vector<uint8_t> keep_row_;
};

// dq of one matrix: the sum of the parts [task][query block][features][queries], in the first of them, transposed back
// into dqkv.
template <class T>
void collect_dq(const AttentionExtents& extents, int64_t matrix, int64_t num_parts, T* parts, T* dqkv) {
  const int64_t part_size = extents.tokens * extents.head_dim;
  for (int64_t part = 1; part < num_parts; ++part) {
    add_row(parts, parts + part * part_size, part_size);
  }
  const Partition blocks = extents.query_blocks();
  for (int64_t block = 0; block < blocks.parts(); ++block) {
    const Range rows = blocks.part(block);
    tensor::transpose_block(parts + rows.begin * extents.head_dim, rows.size(), extents.head_dim, rows.size(),
                            dqkv + extents.qkv_offset(matrix, 0) + rows.begin * extents.qkv_stride(),
                            extents.qkv_stride());
  }
}

template <class T>
void run_backward(const AttentionExtents& extents, const AttentionDropout& dropout, const at::Tensor& qkv,
                  const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& dout, const at::Tensor& dqkv) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const Prepared<T> prepared(extents, qkv, out, dout);
  const Operands<T> operands{qkv.const_data_ptr<T>(),
                             dout.const_data_ptr<T>(),
                             logsumexp.const_data_ptr<T>(),
                             prepared.queries.template const_data_ptr<T>(),
                             prepared.dout.template const_data_ptr<T>(),
                             prepared.keys.template const_data_ptr<T>(),
                             prepared.delta.template const_data_ptr<T>()};
  const int64_t key_blocks = extents.key_blocks().parts();
  const Partition tasks(key_blocks, (key_blocks + kKeyBlocksOfTask - 1) / kKeyBlocksOfTask);
  const int64_t part_size = extents.tokens * extents.head_dim;
  const at::Tensor parts = at::empty({extents.matrices() * tasks.parts(), part_size}, qkv.options());
  T* const parts_data = parts.mutable_data_ptr<T>();
  T* const dqkv_data = dqkv.mutable_data_ptr<T>();
  at::parallel_for(0, extents.matrices() * tasks.parts(), 1, [&](int64_t begin, int64_t end) {
    KeyTask<T> task(extents, dropout, operands);
    for (int64_t i = begin; i < end; ++i) {
      task.run(i / tasks.parts(), tasks.part(i % tasks.parts()), parts_data + i * part_size, dqkv_data);
    }
    tensor::finish_small_products();
  });
  at::parallel_for(0, extents.matrices(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      collect_dq(extents, m, tasks.parts(), parts_data + m * tasks.parts() * part_size, dqkv_data);
    }
  });
}

}  // namespace

void attention_backward(const AttentionExtents& extents, const AttentionDropout& dropout, const at::Tensor& qkv,
                        const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& dout,
                        const at::Tensor& dqkv) {
  AT_DISPATCH_FLOATING_TYPES(qkv.scalar_type(), "attention_backward",
                             [&] { run_backward<scalar_t>(extents, dropout, qkv, out, logsumexp, dout, dqkv); });
}

}  // namespace vit_hybrid::model
