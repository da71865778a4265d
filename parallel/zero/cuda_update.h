// The optimizer's passes over flat tensors of a GPU. Programs without CUDA have no such tensors, and refuse.
#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/zero/device_step.h"
#include "parallel/zero/optimizer_options.h"
#include "parallel/zero/update_rule.h"

namespace vit_hybrid::zero {

// What a step needs stands in a tensor of doubles on the device, [kNumStepSlots] (device_step.h): so the host need not
// know it, and a recorded CUDA graph takes what stands there when it is replayed.

/// Neighbouring elements with one value each, for passes over many parameters at once. An undefined `bounds` is one
/// segment with `value`.
struct Segments {
  double value = 0.0;
  at::Tensor bounds;  ///< int64 [S + 1] on the device, ascending; the first is 0, the last the number of elements
  at::Tensor values;  ///< float64 [S] on the device
};

/// count_adam_step() on the device: once before the updates of a step.
void begin_adam_step_cuda(const at::Tensor& step, const OptimizerOptions& options);

/// The whole update of Adam or AdamW in one pass over memory: scales the gradients, updates moments and weights, and
/// casts the new weights into the parameters. Types of AdamRule; any alignment. `weight_decay`: by element.
void adam_step_cuda(const UpdateTensors& tensors, const at::Tensor& step, const OptimizerOptions& options,
                    const Segments& weight_decay);
/// The same where the host knows the step and has counted it; not skipped.
void adam_step_cuda(const UpdateTensors& tensors, const StepScalars& step, const OptimizerOptions& options,
                    const Segments& weight_decay);

/// Doubles that sum_of_squares_cuda() needs to work in.
inline constexpr int64_t kSumOfSquaresWorkspace = 2048;

/// sums[0] += the sum of the squares of the finite values, sums[1] += the number of those that are not finite, in one
/// pass, in double and in an order that is a function of the number of values alone. `values`: flat, of any type;
/// `counts`: 1 for the elements that count, 0 for the others; `workspace` float64 [kSumOfSquaresWorkspace].
void sum_of_squares_cuda(const at::Tensor& values, const Segments& counts, const at::Tensor& workspace,
                         const at::Tensor& sums);

}  // namespace vit_hybrid::zero
