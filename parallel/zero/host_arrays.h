// Flat tensors of the host as plain arrays of their type, for the loops over them.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/zero/update_rule.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::zero {

/// Elements that a thread takes at least: 1 MiB of Adam's four arrays in fp32.
inline constexpr int64_t kGrain = 1 << 16;

/// Asserts that the tensors belong together: one type and length, contiguous, `num_states` of state.
inline void check_stretch(const UpdateTensors& tensors, size_t num_states) {
  VH_ASSERT(tensors.state.size() == num_states, str(tensors.state.size(), " state tensors for ", num_states));
  std::vector<at::Tensor> others = tensors.state;
  others.push_back(tensors.gradients);
  for (const at::Tensor& tensor : others) {
    VH_ASSERT(tensor.scalar_type() == tensors.weights.scalar_type() && tensor.numel() == tensors.weights.numel() &&
                  tensor.is_contiguous() && tensors.weights.is_contiguous(),
              str(tensor.numel(), " elements for ", tensors.weights.numel(), " weights"));
  }
}

/// Calls `use(T())` with T the type of the weights, float or double.
template <class Use>
void with_type(const UpdateTensors& tensors, const Use& use) {
  if (tensors.weights.scalar_type() == at::kFloat) {
    return use(float());
  }
  use(double());
}

/// Calls `loop(begin, count)` for parts of a stretch, on all threads.
template <class Loop>
void for_parts(const UpdateTensors& tensors, const Loop& loop) {
  at::parallel_for(0, tensors.weights.numel(), kGrain, [&](int64_t begin, int64_t end) { loop(begin, end - begin); });
}

}  // namespace vit_hybrid::zero
