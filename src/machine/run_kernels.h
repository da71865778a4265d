// The kernels of a run: what its configuration allows, for which sizes they are measured, and the choice itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/loading/sampler.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/config/run_config.h"
#include "src/kernels/gemm/device_kernels.h"
#include "src/machine/host_kernel_timing.h"

namespace vit_hybrid::train {

/// --precision tf32 and --deterministic, for kernels::set_device_kernel_options().
kernels::DeviceKernelOptions kernel_options(const RunConfig& config);

/// NVIDIA's libraries read NVIDIA_TF32_OVERRIDE themselves, and it counts for more than what a program asks of them.
struct Tf32Override {
  std::optional<Error> problem;  ///< they might take TF32 without --precision tf32
  std::string warning;           ///< they take no TF32 with it; empty where they do
};
/// `value`: of the variable, null where it is not set. Pure.
Tf32Override tf32_override(Precision precision, const char* value);

/// kernels::set_device_kernel_options() of the run's options. Error(kUsage) where the device is a GPU and the
/// environment forces TF32 upon it; a warning where it forbids it. Collective over `world`.
void set_kernel_options(const RunConfig& config, c10::Device device, const comm::MpiGroup& world);

/// Numbers of samples that the micro-batches of all replicas have in the epoch of `plan`, ascending; none where it has
/// no steps. Pure.
std::vector<int64_t> micro_batch_sizes(const data::EpochPlan& plan, int64_t num_replicas, int64_t micro_batch_size);

/// tune_kernels() for the layers of the whole mesh and micro-batches of these sizes, with its report in the log.
/// `saved`: CheckpointInfo's of the run that is resumed, or empty; rank 0's counts. On a GPU, when its memory is taken;
/// does nothing on the CPU. Collective over `world`.
void choose_kernels(const RunConfig& config, const std::vector<int64_t>& sizes, const std::string& saved,
                    c10::Device device, const comm::MpiGroup& world);

/// The largest linear layer of a block on any tensor rank, as a micro-batch of the run goes through it.
HostLayer largest_layer(const RunConfig& config, HostLayer::Passes passes);

/// tune_host_kernel() for that layer, where the precision computes products in fp32. `saved`: CheckpointInfo's
/// of the model that is trained on or used, or empty; rank 0's counts. On the CPU, before the first record of the run,
/// which names the kernel. Collective over `world`.
void choose_host_kernel(const RunConfig& config, HostLayer::Passes passes, const std::string& saved,
                        const comm::MpiGroup& world);

/// The choices as a text, as checkpoints store it; nothing where none was made.
std::string saved_kernels();

/// {"measured_on": ..., "choices": {problem: {"kernel": ..., "us": ..., "fastest_us": ...}}}; null where none was made.
Json kernel_choices_json();

}  // namespace vit_hybrid::train
