// Forward kernel of the blocked attention: softmax over the key blocks of a query block as they come.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "src/kernels/attention/blocked_attention_kernels.h"

namespace vit_hybrid::kernels {

namespace {

// Scores of a block, 64 x 256 in fp32, are 64 KiB: with the operands they stay in a second-level cache.
constexpr int64_t kQueryBlock = 64;
constexpr int64_t kKeyBlock = 256;

// A block of queries against all keys of its matrix.
template <class T>
class QueryTask {
 public:
  using Compute = ComputeType<T>;

  QueryTask(const AttentionInputs<T>& inputs, AttentionWorkspace& workspace)
      : inputs_(inputs),
        query_blocks_(inputs.extents.tokens, kQueryBlock),
        key_blocks_(inputs.extents.tokens, kKeyBlock),
        stride_(key_blocks_.largest()),
        space_for_keys_(workspace.take<T>(inputs.extents.operand_size())),
        space_for_values_(workspace.take<T>(kInPairs<T> ? inputs.extents.operand_size() : 0)),
        scores_(workspace.take<Compute>(query_blocks_.largest() * stride_)),
        weights_(make_weights(workspace)),
        out_(workspace.take<Compute>(query_blocks_.largest() * inputs.extents.head_dim)),
        maxima_(workspace.take<Compute>(query_blocks_.largest())),
        sums_(workspace.take<Compute>(query_blocks_.largest())),
        corrections_(workspace.take<Compute>(query_blocks_.largest())),
        keep_(workspace.take<uint8_t>(stride_)) {}

  void run(int64_t matrix, int64_t query_block, T* out, Compute* logsumexp) {
    if (matrix != prepared_) {
      prepare(matrix);
    }
    const Range queries = query_blocks_.block(query_block);
    std::fill_n(maxima_, queries.size(), -std::numeric_limits<Compute>::infinity());
    std::fill_n(sums_, queries.size(), Compute(0));
    for (size_t i = 0; i < keys_.size(); ++i) {
      add_keys(matrix, queries, i);
    }
    store(matrix, queries, out, logsumexp);
  }

 private:
  T* make_weights(AttentionWorkspace& workspace) {
    if constexpr (kInPairs<T>) {
      return workspace.take<T>(query_blocks_.largest() * stride_);
    } else {
      return scores_;
    }
  }

  // Consecutive tasks of a thread are mostly of one matrix: its keys and values become operands once.
  void prepare(int64_t matrix) {
    keys_.clear();
    values_.clear();
    for (int64_t i = 0; i < key_blocks_.count(); ++i) {
      const Range keys = key_blocks_.block(i);
      const int64_t offset = inputs_.extents.operand_offset(keys.begin);
      keys_.push_back(transposed_right_operand(inputs_.block(matrix, 1, keys), space_for_keys_ + offset));
      values_.push_back(right_operand(inputs_.block(matrix, 2, keys), space_for_values_ + offset));
    }
    prepared_ = matrix;
  }

  void add_keys(int64_t matrix, Range queries, size_t key_block) {
    const Range keys = key_blocks_.block(static_cast<int64_t>(key_block));
    const auto scale = static_cast<Compute>(inputs_.extents.scale());
    const Block<T> q = inputs_.block(matrix, 0, queries);
    multiply<T>(q.rows, keys.size(), q.columns, Store::kOverwrite, {q.data, q.stride}, keys_[key_block], scores_,
                stride_);
    const SoftmaxTile<T> tile{q.rows, keys.size(), stride_, scores_, scale, weights_, maxima_, sums_, corrections_};
    update_softmax(tile);
    if (key_block > 0) {
      correct_rows(out_, q.rows, q.columns, corrections_);
    }
    drop(matrix, queries, keys);
    multiply<T>(q.rows, q.columns, padded_depth<T>(keys.size()), keys.begin == 0 ? Store::kOverwrite : Store::kAdd,
                {weights_, stride_}, values_[key_block], out_, q.columns);
  }

  // Dropout acts on the normalised weights, so that their sum is taken before.
  void drop(int64_t matrix, Range queries, Range keys) {
    if (!inputs_.dropout.active()) {
      return;
    }
    const int64_t heads = inputs_.extents.heads;
    for (int64_t row = 0; row < queries.size(); ++row) {
      inputs_.dropout.fill_row(matrix / heads, matrix % heads, queries.begin + row, keys, keep_);
      mask_row(weights_ + row * stride_, keep_, keys.size());
    }
  }

  void store(int64_t matrix, Range queries, T* out, Compute* logsumexp) {
    const AttentionExtents& extents = inputs_.extents;
    const auto kept_scale = static_cast<Compute>(inputs_.dropout.kept_scale());
    for (int64_t row = 0; row < queries.size(); ++row) {
      store_row(out_ + row * extents.head_dim, extents.head_dim, kept_scale / sums_[row],
                out + extents.out_offset(matrix, queries.begin + row));
      logsumexp[matrix * extents.tokens + queries.begin + row] = maxima_[row] + std::log(sums_[row]);
    }
  }

  const AttentionInputs<T>& inputs_;
  TokenBlocks query_blocks_;
  TokenBlocks key_blocks_;
  int64_t stride_;  // of scores and weights
  T* space_for_keys_;
  T* space_for_values_;
  Compute* scores_;  // [queries][stride_]
  T* weights_;       // the same; fp32, fp64: the same memory
  Compute* out_;     // [queries][features]
  Compute* maxima_;  // by query: of the scores so far
  Compute* sums_;    // by query: of the exponentials so far
  Compute* corrections_;
  uint8_t* keep_;
  int64_t prepared_ = -1;           // the matrix of keys_ and values_
  std::vector<Operand<T>> keys_;    // k^T, by key block
  std::vector<Operand<T>> values_;  // v
};

}  // namespace

template <class T>
void attention_forward(const AttentionInputs<T>& inputs, T* out, ComputeType<T>* logsumexp) {
  const int64_t blocks = TokenBlocks(inputs.extents.tokens, kQueryBlock).count();
  for_attention_tasks(
      inputs.extents.matrices() * blocks,
      [&](AttentionWorkspace& workspace) { return QueryTask<T>(inputs, workspace); },
      [&](QueryTask<T>& task, int64_t i) { task.run(i / blocks, i % blocks, out, logsumexp); });
}

template void attention_forward(const AttentionInputs<double>&, double*, double*);
template void attention_forward(const AttentionInputs<float>&, float*, float*);
template void attention_forward(const AttentionInputs<c10::BFloat16>&, c10::BFloat16*, float*);

}  // namespace vit_hybrid::kernels
