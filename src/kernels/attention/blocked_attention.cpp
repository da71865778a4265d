// Blocked attention on the host: forward by blocks of queries, backward by blocks of keys, and the autograd node.
//
// Templates over the type of the operands (double, float, bf16) that compute in ComputeType. Types differ in two
// places: right_operand() and its like (fp32 operands lie right as they are, bf16 ones come in pairs of rows from the
// right) and attention_rows (the loops between the products; in bf16 exponential, rounding and the layout of the next
// operand are one pass in AVX-512 registers). A backward task owns some keys of one matrix: dv^T += dout^T p and dk^T
// += q^T ds grow in its cache, dq += ds k in memory, in at most kMostTasks parts a matrix, which are summed in their
// order.
#include "src/kernels/attention/blocked_attention.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

#include "src/base/autograd_node.h"
#include "src/base/memory_tracker.h"
#include "src/base/partition.h"
#include "src/kernels/attention/attention_rows.h"
#include "src/kernels/gemm/packing.h"
#include "src/kernels/gemm/small_product.h"

namespace vit_hybrid::kernels {

/// Hands out arrays one behind the other. Over no memory (null) it counts the bytes that would be needed.
class AttentionWorkspace {
 public:
  explicit AttentionWorkspace(std::byte* memory) : memory_(memory) {}

  /// `count` elements, uninitialized, on a border of 64 bytes if the memory is.
  template <class T>
  T* take(int64_t count) {
    T* const array = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + used_);
    used_ += (count * static_cast<int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    return array;
  }
  int64_t used() const { return used_; }

 private:
  static constexpr int64_t kAlignment = 64;

  std::byte* memory_;
  int64_t used_ = 0;
};

/// A block [rows, columns] of a tensor, rows `stride` apart.
template <class T>
struct Block {
  const T* data;
  int64_t stride;
  int64_t rows;
  int64_t columns;
};

/// An operand of small_product(): data, and the distance between its rows (bf16 from the right: between rows of pairs).
template <class T>
struct Operand {
  const T* data;
  int64_t stride;
};

/// The block from the right, zeros behind an odd last row; `space`, used in bf16 only, holds padded_depth(rows) rows.
template <class T>
Operand<T> right_operand(const Block<T>& block, T* space) {
  if constexpr (kInPairs<T>) {
    pack_pairs(block.data, block.stride, block.rows, block.columns, space, block.columns);
    return {space, block.columns};
  } else {
    return {block.data, block.stride};
  }
}

/// The transposed block from the right, made in `space` of padded_depth(columns) rows.
template <class T>
Operand<T> transposed_right_operand(const Block<T>& block, T* space) {
  if constexpr (kInPairs<T>) {
    pack_transposed_pairs(block.data, block.stride, block.rows, block.columns, space, block.rows);
  } else {
    transpose_block(block.data, block.stride, block.rows, block.columns, space, block.rows);
  }
  return {space, block.rows};
}

/// The transposed block from the left, made in `space` of `columns` rows of padded_depth(rows), zeros at their ends.
template <class T>
Operand<T> transposed_left_operand(const Block<T>& block, T* space) {
  const int64_t stride = padded_depth<T>(block.rows);
  transpose_padded(block.data, block.stride, block.rows, block.columns, space, stride);
  return {space, stride};
}

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

// Scores and their gradients are 256 KiB in bf16, with their operands, and 512 KiB in fp32.
constexpr int64_t kGradientQueryBlock = 128;
template <class T>
constexpr int64_t kGradientKeyBlock = kInPairs<T> ? 256 : 512;

// Tasks of a matrix depend on its length only, never on threads or on what else there is: so do the bits.
constexpr int64_t kTokensOfTask = 1024;
constexpr int64_t kMostTasks = 4;

// The key blocks of each task of a matrix.
template <class T>
Partition tasks_of_matrix(const AttentionExtents& extents) {
  const int64_t tasks = std::min(kMostTasks, (extents.tokens + kTokensOfTask - 1) / kTokensOfTask);
  return Partition(TokenBlocks(extents.tokens, kGradientKeyBlock<T>).count(), tasks);
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
        query_blocks_(extents_.tokens, kGradientQueryBlock),
        key_blocks_(extents_.tokens, kGradientKeyBlock<T>),
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
  const LongWork computes;
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
  const LongWork computes;
  VH_DISPATCH_KERNEL_TYPE(input.scalar_type(), [&] {
    attention_backward<scalar_t>({extents, dropout, input.const_data_ptr<scalar_t>()}, out.const_data_ptr<scalar_t>(),
                                 results[1].const_data_ptr<ComputeType<scalar_t>>(), dout.const_data_ptr<scalar_t>(),
                                 dqkv.mutable_data_ptr<scalar_t>());
  });
  input = out = dout = at::Tensor();  // before there is another copy
  return dqkv.to(qkv.scalar_type());
}

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

int64_t blocked_attention_bytes(const AttentionSizes& sizes, at::ScalarType type, bool with_dropout, int threads) {
  const AttentionExtents extents{sizes.samples, sizes.tokens, sizes.heads, sizes.head_dim};
  const AttentionDropout dropout({with_dropout ? 0.5 : 0.0, 0, DropSite::kAttention}, {0, 0, {}, Mode::kTraining}, 0,
                                 sizes.tokens);
  const bool is_converted = kernel_type(type) != type;
  int64_t bytes = 0;
  VH_DISPATCH_KERNEL_TYPE(kernel_type(type), [&] {
    using Compute = ComputeType<scalar_t>;
    const AttentionInputs<scalar_t> inputs{extents, dropout, nullptr};
    const BackwardInputs<scalar_t> backward_inputs{inputs, nullptr, nullptr, nullptr};
    AttentionWorkspace forward_task(nullptr), backward_task(nullptr);
    QueryTask<scalar_t>(inputs, forward_task);
    KeyTask<scalar_t>(backward_inputs, backward_task);
    // qkv and the result; in backward also their gradients.
    const int64_t copies = is_converted ? extents.samples * extents.tokens * 4 * extents.width() * sizeof(scalar_t) : 0;
    const int64_t parts = tasks_of_matrix<scalar_t>(extents).parts() * extents.matrices() * extents.tokens *
                          extents.head_dim * static_cast<int64_t>(sizeof(Compute));
    bytes = std::max(copies + threads * forward_task.used(), 2 * copies + parts + threads * backward_task.used());
  });
  return bytes;
}

at::Tensor blocked_attention(const at::Tensor& qkv, int64_t num_heads, const AttentionDropout& dropout) {
  const auto results = without_grad([&] { return forward(qkv, num_heads, dropout); });
  return record("blocked_attention", results[0], {qkv}, [=](const at::Tensor& dout) {
    return std::vector<at::Tensor>{backward(qkv, num_heads, dropout, results, dout)};
  });
}

#undef VH_DISPATCH_KERNEL_TYPE

}  // namespace vit_hybrid::kernels
