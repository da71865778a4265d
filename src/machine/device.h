// The device of a rank: which GPU, by what all ranks see of their nodes, or the CPU; and what else it computes with;
// whether its steps are recorded as CUDA graphs.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/loading/tensor_pool.h"
#include "parallel/comm/failure.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/device/gpu_survey.h"
#include "src/base/error.h"
#include "src/config/run_config.h"
#include "src/machine/model_memory.h"

namespace vit_hybrid::train {

/// What of a training's steps is recorded on its device and started as a whole.
struct StepRecording {
  bool micro_batches = false;  ///< see StepGraph
  bool updates = false;        ///< the norm, and an update that the device's numbers alone steer
  std::string text;            ///< how steps are started on a GPU, and why, for the start of a run
};

/// As --cuda-graph (auto: where it can) has it. Error(kUsage) where `on` is given and it cannot. `config` is resolved.
/// Pure.
StepRecording step_recording(const StepConfig& config, c10::Device device);
/// Its micro_batches, but false where `on` is refused. Pure.
bool records_micro_batches(const StepConfig& config, c10::Device device);

/// Where a rank is, and what it sees there.
struct RankGpus {
  std::string host;
  int node = 0;
  int node_rank = 0;
  GpuSurvey survey;
};

/// The number, among those that it sees, of the GPU of `rank`; nothing for the CPU. `ranks` holds all ranks of the job
/// in order. GPUs are given out by the place on the node, ranks_per_gpu ranks to each; the ranks of a node see either
/// all its GPUs, or each exactly its own. kAuto is the CPU where no node has a GPU. Error(kUsage), the same on every
/// rank, where nodes differ in having GPUs, ranks see others in another way, there are too few, or a driver does not
/// fit.
std::optional<int> assign_gpu(DeviceChoice choice, int ranks_per_gpu, const std::vector<RankGpus>& ranks, int rank);

/// What may be wrong where the ranks of a node see one GPU each, every one its own, or one of several that the node
/// has: one sentence, or nothing. Pure.
std::string binding_warning(const std::vector<RankGpus>& ranks);

/// Why this precision cannot be had on a GPU, or, with null, on the CPU, which can do all of them.
std::optional<Error> precision_problem(Precision precision, const Gpu* gpu);

/// The environment variables, with their values, that have NCCL of this version ("2.28.9") take ranks that share a GPU.
std::vector<std::pair<std::string, std::string>> nccl_sharing_variables(const std::string& nccl_version, int rank);

/// The device of this rank, made the current one of the calling thread, with a stream of its own: one GPU a rank (or
/// ranks_per_gpu) by its place on the node, or the CPU; see assign_gpu(). Ranks that share a GPU have NCCL set up for
/// it. Error(kUsage) where the device cannot be had, or `precision` with it. Collective over `world`.
c10::Device choose_device(DeviceChoice choice, int ranks_per_gpu, Precision precision, const comm::MpiGroup& world);

/// Where the batches of a rank with this device lie on the host: kAuto page-locks them where the device is a GPU.
/// Error(kUsage) where kOn is asked for and it is none.
data::HostMemory batch_memory(PinMemory choice, c10::Device device);

/// How far the data of a rank are read ahead.
struct ReadAhead {
  int threads;
  int batches;
};
/// --io-threads and --prefetch-depth. 'auto' takes two threads where the others compute; a GPU wants its batches
/// faster, and leaves the rank's `num_threads` threads to it: half of them read, 2 to 8. Batches: as many, at least 2.
/// Pure.
ReadAhead read_ahead(const DataConfig& data, c10::Device device, int num_threads);

/// How the groups of a job are connected: by operations as large as a bucket of gradients, and where ranks share a GPU,
/// which has memory and blocks for one, by the smallest.
comm::TransportOptions transport_options(const ParallelConfig& parallel);

/// What a rank computes with.
struct Machine {
  c10::Device device;
  int node_cores = 0;  ///< that the job may use on this node; 0: not known
};

/// Sets the limit of waiting, the threads, the device (choose_device()) and the options of kernels as `config`
/// (resolved) says, and says what is wrong with the placement of ranks that compute on the CPU. Error(kUsage) where
/// the device is not to be had, the configuration's precision, pin_memory or cuda_graph not with it, or the model
/// cannot fit. Collective over `world`.
Machine set_up_machine(const StepConfig& config, const DataConfig& data, ModelPurpose purpose,
                       const comm::MpiGroup& world);

}  // namespace vit_hybrid::train
