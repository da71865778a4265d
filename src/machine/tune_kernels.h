// Autotuning of the kernels of a GPU: the problems of a model, and the fastest kernel of each.
//
// Chosen once for the mesh: every product and attention of every rank is a value (ProductProblem, AttentionProblem)
// that is listed from the model's options and the sizes of the micro-batches before the first step, measured on rank 0
// and kept in one table by name (KernelTable). After the first step a product costs one lookup and one call of cuBLASLt
// (kernels::DeviceProducts).
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "model/vit_options.h"
#include "parallel/comm/mpi/mpi_group.h"
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

/// What a run has of an earlier start of it, and whether that counts.
enum class SavedKernels { kUse, kMeasureAgain };

/// What was done, for the start-up report and the records of a run; the same on all ranks.
struct TuningReport {
  int num_measured = 0;
  int num_saved = 0;     ///< choices of the earlier start that are used
  double seconds = 0.0;  ///< of measuring
  std::string text;      ///< one line for people
  std::string origin;    ///< of a choice that is not from this start, before its reason: "as saved in the checkpoint; "
};

/// Makes kernels::kernel_table() one of `machine` with those choices of `saved` (KernelTable::text(), or empty) for
/// `problems` that count. Why the others do not, for the end of TuningReport::text: ", the saved ones were for X".
/// Error(kBadData) where `saved` is damaged and used.
std::string begin_kernel_table(const std::string& machine, const std::vector<std::string>& problems,
                               const std::string& saved, SavedKernels use);

/// Gives all ranks rank 0's report and kernels::kernel_table(). Collective over `world`.
void share_kernels(TuningReport& report, const comm::MpiGroup& world);

/// Rank 0 takes the choices of `saved` (KernelTable::text() of the run that is resumed, or empty), measures the
/// problems that it has none for, and sends all to the others: afterwards kernels::kernel_table() is the same on every
/// rank. Before the first step, when parameters and optimizer state are allocated. Error(kBadData), on all ranks, where
/// `saved` is damaged. Collective over `world`.
TuningReport tune_kernels(const DeviceProblems& problems, const std::string& saved, SavedKernels use,
                          c10::Device device, const comm::MpiGroup& world);

/// What fixed sums cost: how much longer `problems` take with the chosen kernels than with the fastest, as one line;
/// empty where nothing was passed over.
std::string fixed_order_cost_text(const DeviceProblems& problems);

}  // namespace vit_hybrid::train
