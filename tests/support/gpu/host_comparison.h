// Training on GPUs beside training on the host: the same engine, layouts and data.
#pragma once

#include <optional>
#include <string>

#include "tests/support/training_harness.h"

namespace vit_hybrid::testing {

/// A few steps of a model with uneven batches and clipping, by the name of a precision.
Experiment gpu_experiment(const model::VitOptions& model, const std::string& precision);

struct Bounds {
  double gradient;                  ///< of losses too
  std::optional<double> parameter;  ///< none where Adam magnifies rounding
};

/// `layout` on this world's GPUs against one process on the host, which every rank is for itself. Collective over the
/// world, whose size the layout has.
void compare_with_host(const Experiment& experiment, const Layout& layout, const Bounds& bounds);

/// `layout` on this world's GPUs in bf16 or fp16 has, against fp64 on the host, errors of at most three times those of
/// one process on a GPU in the same precision (docs/numerics.md). bf16 is skipped, visibly, where the GPU has none.
/// Collective over the world, whose size the layout has.
void compare_half_with_one_process(const model::VitOptions& model, const std::string& precision, const Layout& layout);

}  // namespace vit_hybrid::testing
