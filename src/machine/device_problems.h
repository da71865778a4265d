// The problems that kernels on GPUs are chosen for: what the layers of a rank compute, known before the first step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/vit_options.h"
#include "src/base/partition.h"
#include "src/kernels/attention/device_attention.h"
#include "src/kernels/gemm/product_problem.h"

namespace vit_hybrid::train {

/// The types of a training that products differ by.
struct ProductTypes {
  at::ScalarType compute = at::kFloat;
  at::ScalarType gradient = at::kFloat;
  kernels::Fp32Products fp32 = kernels::Fp32Products::kExact;
};

/// Each as often as it is computed.
struct DeviceProblems {
  std::vector<kernels::ProductProblem> products;
  std::vector<kernels::AttentionProblem> attentions;

  void add(const DeviceProblems& more);
  /// Each once, in the order of their first places.
  DeviceProblems distinct() const;
  std::vector<std::string> names() const;
  /// Of all that choices are made of: names(), and all products also without an extra.
  std::vector<std::string> names_with_parts() const;
};

/// Forward and backward of one micro-batch of `num_samples` samples through the layer units of a tensor rank. Attention
/// with dropout is not among them: it has one kernel.
DeviceProblems device_problems(const model::VitOptions& options, Range units, int tensor_rank, int tensor_size,
                               int64_t num_samples, const ProductTypes& types);

/// Those of all ranks of a mesh together, for micro-batches of each of these numbers of samples; each once.
DeviceProblems device_problems_of_mesh(const model::VitOptions& options, int tensor_size,
                                       const std::vector<int64_t>& micro_batch_sizes, const ProductTypes& types);

}  // namespace vit_hybrid::train
