// The two kernels behind blocked_attention().
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "src/base/memory_tracker.h"
#include "src/base/partition.h"
#include "src/kernels/attention/attention_dropout.h"
#include "src/kernels/attention/attention_operands.h"
#include "src/kernels/attention/attention_rows.h"
#include "src/kernels/attention/attention_workspace.h"
#include "src/kernels/gemm/small_product.h"

namespace vit_hybrid::kernels {

/// Nearly equal blocks of tokens, at most `largest` long, of whole groups but for the last one: so that few sizes
/// occur, and all but the last are good for vectors and pairs.
class TokenBlocks {
 public:
  /// `largest` is a multiple of kRowAlignment.
  TokenBlocks(int64_t tokens, int64_t largest)
      : tokens_(tokens), groups_((tokens + kRowAlignment - 1) / kRowAlignment, (tokens + largest - 1) / largest) {}

  int64_t count() const { return groups_.parts(); }
  Range block(int64_t i) const {
    const Range groups = groups_.part(i);
    return {groups.begin * kRowAlignment, std::min(groups.end * kRowAlignment, tokens_)};
  }
  /// Length of the largest block, rounded up to whole groups.
  int64_t largest() const { return groups_.largest() * kRowAlignment; }

 private:
  int64_t tokens_;
  Partition groups_;
};

/// Extents of one attention, and where its operands lie in qkv [B, N, 3 h d] and in out [B, N, h d].
struct AttentionExtents {
  int64_t samples;
  int64_t tokens;
  int64_t heads;
  int64_t head_dim;

  int64_t matrices() const { return samples * heads; }
  int64_t width() const { return heads * head_dim; }
  int64_t qkv_stride() const { return 3 * width(); }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(head_dim)); }
  /// First element of the rows from `row` of q (part 0), k (1) or v (2) of matrix `m` = sample * heads + head.
  int64_t qkv_offset(int64_t m, int64_t part, int64_t row = 0) const {
    return (m / heads * tokens + row) * qkv_stride() + part * width() + m % heads * head_dim;
  }
  /// First element of the rows from `row` of matrix `m` in a tensor of the shape of out; rows are width() apart.
  int64_t out_offset(int64_t m, int64_t row = 0) const {
    return (m / heads * tokens + row) * width() + m % heads * head_dim;
  }
  /// Elements of a matrix [N, d] in operands made block by block, and of the rows before `row` in them.
  int64_t operand_size() const { return operand_offset(tokens + 1); }
  int64_t operand_offset(int64_t row) const { return row * padded_depth<c10::BFloat16>(head_dim); }
};

/// qkv, and what backward needs beside it, of type T (double, float, c10::BFloat16), contiguous.
template <class T>
struct AttentionInputs {
  const AttentionExtents& extents;
  const AttentionDropout& dropout;
  const T* qkv;

  Block<T> block(int64_t matrix, int64_t part, Range rows) const {
    return {qkv + extents.qkv_offset(matrix, part, rows.begin), extents.qkv_stride(), rows.size(), extents.head_dim};
  }
};

/// out [rows, columns] (+)= left right, over `depth`.
template <class T>
void multiply(int64_t rows, int64_t columns, int64_t depth, Store store, const Operand<T>& left,
              const Operand<T>& right, ComputeType<T>* out, int64_t out_stride) {
  small_product({rows, columns, depth, left.stride, right.stride, out_stride}, store, left.data, right.data, out);
}

/// Runs work(task, i) for i in [0, count), each thread with a task of its own made by make_task(workspace).
template <class MakeTask, class Work>
void for_attention_tasks(int64_t count, MakeTask make_task, Work work) {
  AttentionWorkspace counter(nullptr);
  make_task(counter);
  const int64_t bytes = counter.used();
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const at::Tensor memory = at::empty({at::get_num_threads(), bytes}, at::TensorOptions(at::kByte));
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    AttentionWorkspace workspace(static_cast<std::byte*>(memory.mutable_data_ptr()) + at::get_thread_num() * bytes);
    auto task = make_task(workspace);
    for (int64_t i = begin; i < end; ++i) {
      work(task, i);
    }
    finish_small_products();
  });
}

/// out [B, N, h d] and logsumexp [B h, N] (of the computing type) from qkv.
template <class T>
void attention_forward(const AttentionInputs<T>& inputs, T* out, ComputeType<T>* logsumexp);

/// dqkv [B, N, 3 h d] (every element is written) from the gradient of out.
template <class T>
void attention_backward(const AttentionInputs<T>& inputs, const T* out, const ComputeType<T>* logsumexp, const T* dout,
                        T* dqkv);

}  // namespace vit_hybrid::kernels
