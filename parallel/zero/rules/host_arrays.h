// Flat tensors of the host as plain arrays of the master type, for the loops over them.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>

#include "parallel/zero/rules/update_rule.h"

namespace vit_hybrid::zero {

/// Elements that a thread takes at least: 1 MiB of Adam's four arrays in fp32.
inline constexpr int64_t kGrain = 1 << 16;

/// Elements of all arrays that are worked on before the next: they stay in the first-level cache, and so do gradients
/// that are widened and weights that are cast.
inline constexpr int64_t kChunk = 1024;

/// Asserts that the tensors belong together: one length, contiguous, the master type where it must be, `num_states` of
/// state.
void check_stretch(const UpdateTensors& tensors, size_t num_states);

/// Calls `use(T())` with T the type of the weights, float or double.
template <class Use>
auto with_type(const UpdateTensors& tensors, const Use& use) {
  if (tensors.weights.scalar_type() == at::kFloat) {
    return use(float());
  }
  return use(double());
}

/// `count` values from `begin` on in the master type: where they are, or widened into `buffer`.
const float* widened(const at::Tensor& values, int64_t begin, int64_t count, float* buffer);
const double* widened(const at::Tensor& values, int64_t begin, int64_t count, double* buffer);

/// Casts `weights` into `count` elements from `begin` on; nothing where `parameters` is undefined.
void cast_into(const at::Tensor& parameters, int64_t begin, int64_t count, const float* weights);
void cast_into(const at::Tensor& parameters, int64_t begin, int64_t count, const double* weights);

/// Calls `update(begin, count, gradients)` for chunks of [begin, end), with their gradients in the type T, and then
/// casts the new weights into the parameters. On this thread.
template <class T, class Update>
void update_chunks(const UpdateTensors& tensors, int64_t begin, int64_t end, const Update& update) {
  std::array<T, kChunk> buffer;
  const T* const weights = tensors.weights.const_data_ptr<T>();
  for (int64_t first = begin; first < end; first += kChunk) {
    const int64_t count = std::min(kChunk, end - first);
    update(first, count, widened(tensors.gradients, first, count, buffer.data()));
    cast_into(tensors.parameters, first, count, weights + first);
  }
}

/// update_chunks() for a whole stretch on all threads.
template <class T, class Update>
void update_stretch(const UpdateTensors& tensors, const Update& update) {
  at::parallel_for(0, tensors.weights.numel(), kGrain,
                   [&](int64_t begin, int64_t end) { update_chunks<T>(tensors, begin, end, update); });
}

}  // namespace vit_hybrid::zero
