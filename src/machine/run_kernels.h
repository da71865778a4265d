// The kernels of a run: chosen once for the mesh, stored with it, kept for the machine.
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
#include "src/kernels/gemm/device_products.h"
#include "src/machine/tune_host_kernel.h"

namespace vit_hybrid::train {

/// One small file a kind of machine, replaced as a whole: jobs that start together may all write. What cannot be read,
/// trusted or written is told in one warning and otherwise as if it were not there.
class KernelCache final : public HostKernelStore {
 public:
  /// `folder`: kernel_cache_folder(). `machine`: one line, what a choice holds for.
  KernelCache(std::string folder, std::string machine);

  std::optional<kernels::KernelChoice> read() override;
  kernels::KernelChoice keep(const kernels::KernelChoice& choice, SavedKernels use) override;
  const std::string& path() const { return path_; }

 private:
  std::string machine_;
  std::string folder_;
  std::string path_;
  bool is_damaged_ = false;  // read() has refused the file
};

/// $XDG_CACHE_HOME/vit_hybrid where that is an absolute path, else ~/.cache/vit_hybrid; empty without a home.
std::string kernel_cache_folder();

/// The settings of the environment (NAME=VALUE) that change what oneDNN, MKL and OpenMP do with as many threads on the
/// same processor, sorted; not their numbers of threads, which are the run's, nor what they print. Pure.
std::vector<std::string> kernel_settings(const char* const* environment);

/// What a choice holds for that was measured by ranks on these machines, one text a rank in any order: their kinds,
/// each once. A job on nodes of several kinds so has an entry of its own, and changes none of theirs. Pure.
std::string machines_text(const std::vector<std::string>& machine_of_ranks);

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
