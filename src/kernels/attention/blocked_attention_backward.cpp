// Backward kernel of the blocked attention. A task owns some keys of one matrix and goes over all its queries: the
// gradients of its keys and values grow transposed, dv^T += dout^T p and dk^T += q^T ds, in its cache; its part of dq
// grows in memory, dq += ds k, and the parts of a matrix are summed in their order. Sums over blocks are kept in the
// computing type and rounded once.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/kernels/attention/blocked_attention_kernels.h"

namespace vit_hybrid::kernels {

namespace {

// Scores and their gradients are 256 KiB in bf16, with their operands, and 512 KiB in fp32.
constexpr int64_t kQueryBlock = 128;
template <class T>
constexpr int64_t kKeyBlock = kInPairs<T> ? 256 : 512;

// Tasks of a matrix depend on its length only, never on threads or on what else there is: so do the bits.
constexpr int64_t kTokensOfTask = 1024;
constexpr int64_t kMostTasks = 4;

// The key blocks of each task of a matrix.
template <class T>
Partition tasks_of_matrix(const AttentionExtents& extents) {
  const int64_t tasks = std::min(kMostTasks, (extents.tokens + kTokensOfTask - 1) / kTokensOfTask);
  return Partition(TokenBlocks(extents.tokens, kKeyBlock<T>).count(), tasks);
}

template <class T>
struct BackwardInputs {
  const AttentionInputs<T>& forward;
  const T* out;
  const ComputeType<T>* logsumexp;
  const T* dout;
};

// Some keys of one matrix against all its queries.
template <class T>
class KeyTask {
 public:
  using Compute = ComputeType<T>;

  KeyTask(const BackwardInputs<T>& inputs, AttentionWorkspace& workspace)
      : inputs_(inputs),
        extents_(inputs.forward.extents),
        query_blocks_(extents_.tokens, kQueryBlock),
        key_blocks_(extents_.tokens, kKeyBlock<T>),
        stride_(key_blocks_.largest()),
        space_for_queries_(workspace.take<T>(extents_.operand_size())),
        space_for_dout_(workspace.take<T>(extents_.operand_size())),
        delta_(workspace.take<Compute>(extents_.tokens)),
        space_for_keys_(workspace.take<T>(stride_ * extents_.operand_offset(1))),
        space_for_values_(workspace.take<T>(stride_ * extents_.operand_offset(1))),
        space_for_key_rows_(workspace.take<T>(kInPairs<T> ? stride_ * extents_.operand_offset(1) : 0)),
        dk_(workspace.take<Compute>(extents_.head_dim * stride_)),
        dv_(workspace.take<Compute>(extents_.head_dim * stride_)),
        transposed_(workspace.take<Compute>(extents_.head_dim * stride_)) {
    const int64_t scores = query_blocks_.largest() * stride_;
    tile_.stride = stride_;
    tile_.scale = static_cast<Compute>(extents_.scale());
    tile_.kept_scale = static_cast<Compute>(inputs.forward.dropout.kept_scale());
    tile_.scores = workspace.take<Compute>(scores);
    tile_.gradients = workspace.take<Compute>(scores);
    if constexpr (kInPairs<T>) {
      tile_.weights = workspace.take<T>(scores);
      tile_.dscores = workspace.take<T>(scores);
      tile_.dscores_right = workspace.take<T>(scores);
    } else {
      tile_.weights = tile_.scores;
      tile_.dscores = tile_.gradients;
      tile_.dscores_right = tile_.gradients;
    }
    keep_ = workspace.take<uint8_t>(inputs.forward.dropout.active() ? scores : 0);
  }

  // `dq` [N, d] is overwritten.
  void run(int64_t matrix, Range key_blocks, Compute* dq, T* dqkv) {
    if (matrix != prepared_) {
      prepare(matrix);
    }
    for (int64_t i = key_blocks.begin; i < key_blocks.end; ++i) {
      const Range keys = key_blocks_.block(i);
      prepare_keys(matrix, keys);
      for (size_t j = 0; j < queries_.size(); ++j) {
        compute_tile(matrix, j, keys);
        multiply_tile(j, keys, i == key_blocks.begin ? Store::kOverwrite : Store::kAdd, dq);
      }
      store(dk_, keys, tile_.scale, dqkv + extents_.qkv_offset(matrix, 1, keys.begin));
      store(dv_, keys, Compute(1), dqkv + extents_.qkv_offset(matrix, 2, keys.begin));
    }
  }

 private:
  Block<T> dout_block(int64_t matrix, Range rows) const {
    return {inputs_.dout + extents_.out_offset(matrix, rows.begin), extents_.width(), rows.size(), extents_.head_dim};
  }

  // Consecutive tasks of a thread are mostly of one matrix: what belongs to its queries is made once.
  void prepare(int64_t matrix) {
    queries_.clear();
    dout_.clear();
    for (int64_t i = 0; i < query_blocks_.count(); ++i) {
      const Range rows = query_blocks_.block(i);
      const int64_t offset = extents_.operand_offset(rows.begin);
      queries_.push_back(transposed_left_operand(inputs_.forward.block(matrix, 0, rows), space_for_queries_ + offset));
      dout_.push_back(transposed_left_operand(dout_block(matrix, rows), space_for_dout_ + offset));
    }
    for (int64_t row = 0; row < extents_.tokens; ++row) {
      const int64_t offset = extents_.out_offset(matrix, row);
      delta_[row] = row_product(inputs_.out + offset, inputs_.dout + offset, extents_.head_dim);
    }
    prepared_ = matrix;
  }

  void prepare_keys(int64_t matrix, Range keys) {
    const Block<T> k = inputs_.forward.block(matrix, 1, keys);
    keys_ = transposed_right_operand(k, space_for_keys_);
    key_rows_ = right_operand(k, space_for_key_rows_);
    values_ = transposed_right_operand(inputs_.forward.block(matrix, 2, keys), space_for_values_);
  }

  // The weights of the queries and keys, and the gradients of their scores.
  void compute_tile(int64_t matrix, size_t query_block, Range keys) {
    const Range rows = query_blocks_.block(static_cast<int64_t>(query_block));
    const Block<T> q = inputs_.forward.block(matrix, 0, rows);
    const Block<T> dout = dout_block(matrix, rows);
    multiply<T>(q.rows, keys.size(), q.columns, Store::kOverwrite, {q.data, q.stride}, keys_, tile_.scores, stride_);
    multiply<T>(q.rows, keys.size(), q.columns, Store::kOverwrite, {dout.data, dout.stride}, values_, tile_.gradients,
                stride_);
    tile_.queries = rows.size();
    tile_.keys = keys.size();
    tile_.logsumexp = inputs_.logsumexp + matrix * extents_.tokens + rows.begin;
    tile_.delta = delta_ + rows.begin;
    tile_.keep = make_mask(matrix, rows, keys);
    differentiate(tile_);
  }

  const uint8_t* make_mask(int64_t matrix, Range queries, Range keys) {
    const AttentionDropout& dropout = inputs_.forward.dropout;
    if (!dropout.active()) {
      return nullptr;
    }
    for (int64_t row = 0; row < queries.size(); ++row) {
      dropout.fill_row(matrix / extents_.heads, matrix % extents_.heads, queries.begin + row, keys,
                       keep_ + row * stride_);
    }
    return keep_;
  }

  void multiply_tile(size_t query_block, Range keys, Store store_dq, Compute* dq) {
    const Range queries = query_blocks_.block(static_cast<int64_t>(query_block));
    const int64_t dim = extents_.head_dim;
    const Store store = query_block == 0 ? Store::kOverwrite : Store::kAdd;
    const int64_t depth = padded_depth<T>(queries.size());
    multiply<T>(dim, keys.size(), depth, store, dout_[query_block], {tile_.weights, stride_}, dv_, stride_);
    multiply<T>(dim, keys.size(), depth, store, queries_[query_block], {tile_.dscores_right, stride_}, dk_, stride_);
    multiply<T>(queries.size(), dim, padded_depth<T>(keys.size()), store_dq, {tile_.dscores, stride_}, key_rows_,
                dq + queries.begin * dim, dim);
  }

  // Rows of dqkv from a gradient [features, keys].
  void store(const Compute* gradient, Range keys, Compute factor, T* to) {
    const int64_t dim = extents_.head_dim;
    transpose_block(gradient, stride_, dim, keys.size(), transposed_, dim);
    for (int64_t row = 0; row < keys.size(); ++row) {
      store_row(transposed_ + row * dim, dim, factor, to + row * extents_.qkv_stride());
    }
  }

  const BackwardInputs<T>& inputs_;
  const AttentionExtents& extents_;
  TokenBlocks query_blocks_;
  TokenBlocks key_blocks_;
  int64_t stride_;  // of scores and of the gradients of keys and values
  T* space_for_queries_;
  T* space_for_dout_;
  Compute* delta_;  // by query: sum over the features of dout out
  T* space_for_keys_;
  T* space_for_values_;
  T* space_for_key_rows_;
  Compute* dk_;  // [features][keys]
  Compute* dv_;
  Compute* transposed_;
  ScoreTile<T> tile_{};
  uint8_t* keep_ = nullptr;
  int64_t prepared_ = -1;            // the matrix of delta_ and the following
  std::vector<Operand<T>> queries_;  // q^T from the left, by query block
  std::vector<Operand<T>> dout_;     // dout^T
  Operand<T> keys_{};                // k^T from the right, of the present keys
  Operand<T> values_{};              // v^T
  Operand<T> key_rows_{};            // k
};

// dq of one matrix: the sum of its parts [part][tokens][features], made in the first of them.
template <class T>
void store_dq(const AttentionExtents& extents, int64_t matrix, int64_t num_parts, ComputeType<T>* parts, T* dqkv) {
  const int64_t part_size = extents.tokens * extents.head_dim;
  for (int64_t part = 1; part < num_parts; ++part) {
    add_row(parts, parts + part * part_size, part_size);
  }
  for (int64_t row = 0; row < extents.tokens; ++row) {
    store_row(parts + row * extents.head_dim, extents.head_dim, static_cast<ComputeType<T>>(extents.scale()),
              dqkv + extents.qkv_offset(matrix, 0, row));
  }
}

}  // namespace

template <class T>
void attention_backward(const AttentionInputs<T>& inputs, const T* out, const ComputeType<T>* logsumexp, const T* dout,
                        T* dqkv) {
  using Compute = ComputeType<T>;
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const AttentionExtents& extents = inputs.extents;
  const BackwardInputs<T> backward_inputs{inputs, out, logsumexp, dout};
  const Partition tasks = tasks_of_matrix<T>(extents);
  const int64_t part_size = extents.tokens * extents.head_dim;
  const at::Tensor parts = at::empty({extents.matrices() * tasks.parts(), part_size},
                                     at::TensorOptions(c10::CppTypeToScalarType<Compute>::value));
  auto* const parts_data = parts.mutable_data_ptr<Compute>();
  for_attention_tasks(
      extents.matrices() * tasks.parts(),
      [&](AttentionWorkspace& workspace) { return KeyTask<T>(backward_inputs, workspace); },
      [&](KeyTask<T>& task, int64_t i) {
        task.run(i / tasks.parts(), tasks.part(i % tasks.parts()), parts_data + i * part_size, dqkv);
      });
  at::parallel_for(0, extents.matrices(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      store_dq(extents, m, tasks.parts(), parts_data + m * tasks.parts() * part_size, dqkv);
    }
  });
}

template void attention_backward(const AttentionInputs<double>&, const double*, const double*, const double*, double*);
template void attention_backward(const AttentionInputs<float>&, const float*, const float*, const float*, float*);
template void attention_backward(const AttentionInputs<c10::BFloat16>&, const c10::BFloat16*, const float*,
                                 const c10::BFloat16*, c10::BFloat16*);

}  // namespace vit_hybrid::kernels
