// Autotuning: the kernels of a run, chosen once for the mesh by measuring, stored with it, kept for the machine.
//
// On GPUs every product and attention of every rank is a value (ProductProblem, AttentionProblem) that is listed from
// the model's options and the sizes of the micro-batches before the first step, and measured on rank 0. The host's
// kernel of fp32 products is measured by all ranks at once, because ranks of a node share caches and memory; each round
// ends in comm::agreed(), so that a rank that throws stops all. All choices are in one table by name (KernelTable).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/loading/sampler.h"
#include "model/vit_options.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/json.h"
#include "src/base/partition.h"
#include "src/config/run_config.h"
#include "src/kernels/attention/device_attention.h"
#include "src/kernels/gemm/device_products.h"
#include "src/kernels/gemm/matmul.h"

namespace vit_hybrid::train {

/// --precision tf32 and --deterministic, for kernels::set_device_kernel_options().
kernels::DeviceKernelOptions kernel_options(const StepConfig& config);

/// NVIDIA's libraries read NVIDIA_TF32_OVERRIDE themselves, and it counts for more than what a program asks of them.
/// `value`: of the variable, null where it is not set. A warning where they take no TF32 with --precision tf32, else
/// nothing; Error(kUsage) where they might take it without that. Pure.
std::string tf32_warning(Precision precision, const char* value);

/// kernels::set_device_kernel_options() of the run's options. Error(kUsage) where the device is a GPU and the
/// environment forces TF32 upon it; a warning where it forbids it. Collective over `world`.
void set_kernel_options(const StepConfig& config, c10::Device device, const comm::MpiGroup& world);

/// What a run has of an earlier start of it, and whether that counts.
enum class SavedKernels { kUse, kMeasureAgain };

// ---- On GPUs: each shape of a product and of attention, measured on rank 0.

/// The types of a training that products differ by.
struct ProductTypes {
  at::ScalarType compute = at::kFloat;
  at::ScalarType gradient = at::kFloat;
  kernels::Fp32Products fp32 = kernels::Fp32Products::kExact;
};

struct DeviceProblems {
  std::vector<kernels::ProductProblem> products;
  std::vector<kernels::AttentionProblem> attentions;

  std::vector<std::string> names() const;
  /// Of all that choices are made of: names(), and all products also without an extra.
  std::vector<std::string> names_with_parts() const;
};

/// Forward and backward of one micro-batch of `num_samples` samples through the layer units of a tensor rank, each as
/// often as it is computed. Attention with dropout is not among them: it has one kernel.
DeviceProblems device_problems(const model::VitOptions& options, Range units, int tensor_rank, int tensor_size,
                               int64_t num_samples, const ProductTypes& types);

/// Those of all ranks of a mesh together, for micro-batches of each of these numbers of samples; each once.
DeviceProblems device_problems_of_mesh(const model::VitOptions& options, int tensor_size,
                                       const std::vector<int64_t>& micro_batch_sizes, const ProductTypes& types);

/// Numbers of samples that the micro-batches of all replicas, or their `parts` parts (tensor::parts_of()), have in the
/// epoch of `plan`, ascending; none where it has no steps. Pure.
std::vector<int64_t> micro_batch_sizes(const data::EpochPlan& plan, int64_t num_replicas, int64_t micro_batch_size,
                                       int parts = 1);

/// Rank 0 takes the choices of `saved` (KernelTable::text() of the run that is resumed, or empty), measures the
/// problems that it has none for, and sends all to the others: afterwards kernels::kernel_table() is the same on every
/// rank. What was done, as a line for people. Before the first step, when parameters and optimizer state are allocated.
/// Error(kBadData), on all ranks, where `saved` is damaged. Collective over `world`.
std::string tune_kernels(const DeviceProblems& problems, const std::string& saved, SavedKernels use, c10::Device device,
                         const comm::MpiGroup& world);

/// tune_kernels() for the layers of the whole mesh and micro-batches of these sizes, with its line and what fixed sums
/// cost in the log. `saved`: CheckpointInfo's of the run that is resumed, or empty; rank 0's counts. On a GPU, when its
/// memory is taken; does nothing on the CPU. Collective over `world`.
void choose_kernels(const StepConfig& config, const std::vector<int64_t>& sizes, const std::string& saved,
                    c10::Device device, const comm::MpiGroup& world);

// ---- On the host: one kernel of large fp32 products, measured on all ranks at once.

/// Where the choice of a machine is kept from one run to the next, so that they choose alike: one small file a kind of
/// machine, replaced as a whole: jobs that start together may all write. What cannot be read, trusted or written is
/// told in one warning and otherwise as if it were not there. For rank 0 alone.
class KernelCache {
 public:
  /// `folder`: of the user. `machines`: what a choice holds for, a line of each rank in any order. Their
  /// kinds count: a job on nodes of several kinds has an entry of its own, and changes none of theirs.
  KernelCache(const std::string& folder, const std::vector<std::string>& machines);

  /// What is kept; nothing where there is none that can be used. Does not throw.
  std::optional<kernels::KernelChoice> read();
  /// Keeps a choice that was just measured, and returns what counts: that one, or with kUse the one that another start
  /// has kept meanwhile. Does not throw.
  kernels::KernelChoice keep(const kernels::KernelChoice& choice, SavedKernels use);
  const std::string& path() const { return path_; }

 private:
  std::string machine_;
  std::string path_;         // empty without a folder
  bool is_damaged_ = false;  // read() has refused the file
};

/// The settings of the environment (NAME=VALUE) that change what oneDNN, MKL and OpenMP do with as many threads on the
/// same processor, sorted; not their numbers of threads, which are the run's, nor what they print. Pure.
std::vector<std::string> kernel_settings(const char* const* environment);

/// The time of each of `count` candidates, summed over the ranks: of each rank the least of one to ten rounds within
/// 0.2 s, in which all ranks measure the same candidate at the same time, because they share caches and memory.
/// `measure(candidate)` gives microseconds; what it throws on one rank all throw. NaN for a candidate that has no time
/// on one of them (not finite, not positive). The same on all ranks. Collective over `world`.
std::vector<double> microseconds_of_all_ranks(size_t count, const std::function<double(size_t candidate)>& measure,
                                              const comm::MpiGroup& world);

/// What the kernel of the host's fp32 products is chosen for.
struct HostProblem {
  kernels::HostLayer layer;  ///< the largest of a block, of a rank and a micro-batch
  std::string machine;       ///< of rank 0: KernelTable::machine
  /// kFixed: the usual kernel, whatever was saved, because measuring may choose another one the next time.
  kernels::SumOrder order = kernels::SumOrder::kAny;
};

/// Sets kernels::host_kernel() and kernels::kernel_table() on all ranks: the kernel of `saved` if that is of this
/// machine, else what rank 0's `cache` has (null: there is none), unless `use` gives both up; else that of
/// kernels::choose_host_kernel() by the times of all ranks, which the cache keeps. With SumOrder::kFixed the cache is
/// left alone. Where a rank has one kernel only, all take the library's; where the layer is too small for blocks,
/// nothing is measured: the table is empty then. What was done, as a line for people, or nothing. Error(kBadData), on
/// all ranks, where `saved` is damaged, unless `use` gives it up. Collective over `world`.
std::string tune_host_kernel(const HostProblem& problem, const std::string& saved, SavedKernels use,
                             const comm::MpiGroup& world, KernelCache* cache = nullptr);

/// The largest linear layer of a block on any tensor rank, as a micro-batch of the run goes through it.
kernels::HostLayer largest_layer(const StepConfig& config, kernels::HostLayer::Passes passes);

/// tune_host_kernel() for that layer, where the precision computes products in fp32. `saved`: CheckpointInfo's
/// of the model that is trained on or used, or empty; rank 0's counts. On the CPU, before the first record of the run,
/// which names the kernel. Collective over `world`.
void choose_host_kernel(const StepConfig& config, kernels::HostLayer::Passes passes, const std::string& saved,
                        const comm::MpiGroup& world);

// ---- In checkpoints and records.

/// The choices as a text, as checkpoints store it; nothing where none was made.
std::string saved_kernels();

/// {"measured_on": ..., "choices": {problem: {"kernel": ..., "us": ..., "fastest_us": ...}}}; null where none was made.
Json kernel_choices_json();

}  // namespace vit_hybrid::train
