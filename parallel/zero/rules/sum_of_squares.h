// Sums of squares in double precision, of which the bits do not depend on the number of threads.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <algorithm>
#include <cstdint>
#include <vector>

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
/// value is not finite.
at::Tensor sum_of_squares_there(const at::Tensor& values);

/// Where add_squares() works on the device; undefined for the CPU, where it needs nothing.
at::Tensor sum_of_squares_workspace(c10::Device device);
/// Of the elements of flat `values` in `ranges`: adds the sum to sums[0], and to sums[1] something positive where not
/// all are finite (sums[0] then means nothing), float64 [2] on their device. Nobody waits, and nothing is allocated on
/// a GPU.
void add_squares(const at::Tensor& values, const std::vector<Range>& ranges, const at::Tensor& workspace,
                 const at::Tensor& sums);

}  // namespace vit_hybrid::zero
