// StepWork: the kernels of a training step as kinds of work (src/machine/machine_file.h) with their sizes.
#pragma once

#include <string>
#include <vector>

#include "model/vit_costs.h"
#include "src/config/run_config.h"
#include "src/machine/machine_file.h"

namespace vit_hybrid::train {

/// One kernel, run `count` times.
struct KernelWork {
  std::string kind;           ///< of kernel_kinds()
  std::vector<double> sizes;  ///< that its rate depends on
  double work = 0.0;          ///< in the unit of the kind, of one run
  double count = 1.0;
};

/// Forward and backward of one micro-batch through layer units.
struct PassWork {
  std::vector<KernelWork> forward;
  std::vector<KernelWork> backward;
  double forward_operations = 0.0;  ///< layers' operations, which cost something beside their kernels
  double backward_operations = 0.0;
};

/// Of `samples` samples on a rank of the tensor group, with --recompute and dropout as `config` (resolved) has them.
PassWork pass_work(const RunConfig& config, Range units, model::TensorPlace tensor, int64_t samples);

/// What a rank does once a step, beside messages: packing of `parameters` weights, zeroing and norm of the gradients,
/// and the update of the `owned` elements.
struct UpdateWork {
  std::vector<KernelWork> packing;  ///< in forward and backward of the first micro-batch
  std::vector<KernelWork> norm;
  std::vector<KernelWork> update;
};
UpdateWork update_work(const RunConfig& config, Range units, model::TensorPlace tensor, int64_t parameters,
                       int64_t owned);

/// Seconds of the kernels, by the rates of `tables`; kinds that it lacks take no time.
double seconds_of(const std::vector<KernelWork>& works, const RateTables& tables);

}  // namespace vit_hybrid::train
