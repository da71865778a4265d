// The optimizer's passes over flat tensors of a GPU. Programs without CUDA have no such tensors, and refuse.
#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/zero/optimizer_options.h"
#include "parallel/zero/rules/table_cursor.h"
#include "parallel/zero/sharding.h"

namespace vit_hybrid::zero {

/// The whole step of Adam or AdamW in one pass over memory, by one kernel: scales the gradients, updates moments and
/// weights, and casts the new weights into the parameters. Master weights, gradients and parameters are all fp64 or all
/// fp32, or fp32 with parameters, or gradients and parameters, in bf16 or fp16. `step`: StepControl::values(); nothing
/// changes where it says that the step is skipped.
void adam_step_cuda(const OwnedTensors& owned, const at::Tensor& step, const OptimizerOptions& options);

/// decide() of StepControl::values().
void decide_cuda(const at::Tensor& step);

/// Doubles that sum_of_squares_cuda() needs to work in.
inline constexpr int64_t kSumOfSquaresWorkspace = 2048;

/// Ranges of a flat tensor of a GPU: counted_ranges() as a table_tensor() there, and the last of them; none where that
/// is empty, and that one alone where the table is undefined.
struct CountedTable {
  at::Tensor table;
  CountedRange last = {};
};

/// sums[0] += the sum of the squares of the finite values in the ranges, sums[1] += the number of those that are not
/// finite, in one pass, in double and in an order that is a function of the ranges alone. `values`: of any type, flat
/// from a multiple of 16 bytes on; `workspace` float64 [kSumOfSquaresWorkspace].
void sum_of_squares_cuda(const at::Tensor& values, const CountedTable& ranges, const at::Tensor& workspace,
                         const at::Tensor& sums);

}  // namespace vit_hybrid::zero
