// GradientNorm, the L2 norm of the whole model's gradient, every parameter counted once; ParameterNorms, those of whole
// parameters; and the sums of squares that both are made of, in double precision, of which the bits do not depend on
// the number of threads.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/tensor/parameter_buffer.h"
#include "parallel/zero/rules/device_update.h"
#include "parallel/zero/sharding.h"
#include "src/base/partition.h"

namespace vit_hybrid::zero {

/// The sum of `sum_of_block(begin, count)` over blocks of a fixed size, which all threads share. `Sum` begins as Sum()
/// and has +=.
template <class Sum, class SumOfBlock>
Sum sum_over_blocks(int64_t count, const SumOfBlock& sum_of_block) {
  constexpr int64_t kBlock = 1 << 14;
  const int64_t num_blocks = (count + kBlock - 1) / kBlock;
  std::vector<Sum> partial(static_cast<size_t>(num_blocks));
  at::parallel_for(0, num_blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kBlock;
      partial[static_cast<size_t>(block)] = sum_of_block(first, std::min(kBlock, count - first));
    }
  });
  Sum sum{};
  for (const Sum& value : partial) {
    sum += value;
  }
  return sum;
}

/// Of all values of a contiguous tensor of a floating-point type.
double sum_of_squares(const at::Tensor& values);

/// The same as a tensor of one double on the device of the values, so that nobody has to wait for it; infinite where a
/// value is not finite. Values on a GPU begin at a multiple of 16 bytes.
at::Tensor sum_of_squares_there(const at::Tensor& values);

/// The sum of squares of some ranges of a flat tensor, on its device: on a GPU one pass over all of them, by a table
/// that is made once.
class SquareSum {
 public:
  /// `values` of a GPU begin at a multiple of 16 bytes. Ranges may be empty.
  SquareSum(at::Tensor values, std::vector<Range> ranges);

  /// Adds it to sums[0], and to sums[1] something positive where not all values are finite (sums[0] then means
  /// nothing), float64 [2] on their device. Nobody waits, and nothing is allocated on a GPU.
  void add_to(const at::Tensor& sums) const;

 private:
  at::Tensor values_;
  std::vector<Range> ranges_;
  CountedTable table_;    // of a GPU
  at::Tensor workspace_;  // the same
};

/// Every rank adds up the squares of what it owns of each parameter of its stage, each element counted once; one small
/// all-reduce over the shards and one over the tensor axis make them sums over the global tensors. In double, so that
/// layouts differ by rounding.
class ParameterNorms {
 public:
  /// All arguments outlive it.
  ParameterNorms(const tensor::ParameterBuffer& buffer, const StateGroups& groups, comm::Communicator& tensor);

  /// Begins a step.
  void clear();
  /// The two sums of a parameter, of weights and update: doubles on the buffer's device, to be added to.
  at::Tensor sums_of(int parameter) const;
  /// Makes the norms, the same bits on all ranks that own the same elements. Collective over the data axis and tensor.
  void reduce();

  double weight_norm(int parameter) const { return norm(parameter, 0); }
  double update_norm(int parameter) const { return norm(parameter, 1); }

 private:
  double norm(int parameter, int64_t which) const;

  const tensor::ParameterBuffer& buffer_;
  StateGroups groups_;
  comm::Communicator& tensor_;
  at::Tensor sums_;  // [parameters, 2]
  at::Tensor host_;  // the reduced sums
};

/// Counts each element on one rank of the world: on the first of the data ranks that own it, and, if it is replicated
/// over the tensor axis, on tensor rank 0.
class GradientNorm {
 public:
  GradientNorm(const tensor::ParameterBuffer& buffer, StatePlace place, int tensor_rank, comm::Communicator& world);

  /// After GradientReducer::finish(): sets StepControl::sums(), float64 [2], to the sum of the squares, added up in
  /// double, and to how often some rank has something that is not finite; the same bits on all ranks. The host does not
  /// wait for a GPU. Collective over world.
  void sum_into(const at::Tensor& sums) const;

 private:
  SquareSum squares_;  // of the elements of the flat buffer that this rank counts
  comm::Communicator& world_;
};

}  // namespace vit_hybrid::zero
