// MemoryPlan: how many bytes each class of memory of a rank will hold at its peak, by closed forms, before anything
// runs.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/pipeline/schedule.h"
#include "parallel/tensor/parameter_buffer.h"
#include "src/base/memory_tracker.h"
#include "src/base/partition.h"
#include "src/config/run_config.h"
#include "src/kernels/gemm/matmul.h"

namespace vit_hybrid::train {

/// Bytes of a number.
inline int64_t size_of(at::ScalarType type) {
  return static_cast<int64_t>(at::elementSize(type));
}

/// What computes, as far as memory depends on it.
struct ComputeTraits {
  c10::DeviceType device = c10::DeviceType::CPU;
  int threads = 1;                                                 ///< of a rank, on the host
  int64_t read_ahead = 2;                                          ///< batches, of each loader
  int64_t reading_threads = 2;                                     ///< of each loader; the main one where there is none
  kernels::ProductKernel fp32 = kernels::ProductKernel::kLibrary;  ///< host_kernel() on the host
  int capability = 90;                                             ///< of the GPU: 90 for sm_90
  std::vector<int> nodes;                                          ///< ranks of each; empty: all are on one
  bool shares = true;                                              ///< memory with ranks of its node: !unshared()
  bool saves = false;                                              ///< checkpoints, in a run
  bool copies_state = false;                                       ///< CheckpointConfig::copies_state()
};

/// Those of a rank of so many threads on `device`, after the kernels were chosen, as far as no device has to be there.
ComputeTraits compute_traits(const DataConfig& data, const CheckpointConfig& checkpoint, c10::Device device,
                             int threads);
/// Those of this process; `nodes`: how many ranks each has.
ComputeTraits compute_traits(const DataConfig& data, const CheckpointConfig& checkpoint, c10::Device device,
                             const std::vector<int>& nodes);

/// The place of a rank in its replica of the model.
struct ModelPlace {
  int stage = 0;
  int tensor_rank = 0;
};

/// What is to be said where a training has fewer samples (0: not known) than a step of it; else empty.
std::string small_data(const StepConfig& config, int64_t samples);

using ClassBytes = std::array<int64_t, kNumMemoryClasses>;

/// Of a rank's process beside tensors, after its start: measured figures of the host. On a GPU NCCL's buffers alone, by
/// what others have told of them.
struct LibraryBytes {
  int64_t code = 0;     ///< and tables of LibTorch, oneDNN and MPI, which come as their functions are first called
  int64_t mkl = 0;      ///< of products in fp64
  int64_t slots = 0;    ///< of other ranks of the node, which are read
  int64_t threads = 0;  ///< beside the first
  int64_t hdf5 = 0;     ///< of checkpoints
  int64_t freed = 0;    ///< blocks of tensors that are kept for the next ones
  int64_t nccl = 0;     ///< of the GPU

  int64_t total() const { return code + mkl + slots + threads + hdf5 + freed + nccl; }
};

/// What a rank holds.
struct MemoryPlan {
  ClassBytes peak{};  ///< of each class by itself
  /// Of all together: while the weights are drawn or in a step, where the peaks of activations and workspaces are taken
  /// to coincide, which they need not; but fc2's come before that of activations, attention's and the embedding's
  /// after.
  int64_t total = 0;
  int64_t on_host = 0;  ///< of `total`, where the rank computes on a GPU: batches and generated fields
  LibraryBytes libraries;
  /// Of gradients and parameters of other ranks of the node, which this process reads where they lie: resident in it
  /// too, but there once for all.
  int64_t shared = 0;

  /// Of the memory that the rank computes in: on the host the process grows by it, on a GPU it holds the tensors there.
  int64_t taken() const { return total - on_host + libraries.total(); }
  /// By which the resident memory of its process grows, on the host.
  int64_t process() const { return taken() + shared; }
};

/// What the ranks of a replica have in common.
struct ReplicaPlan {
  int replica = 0;
  std::vector<Range> stages;  ///< units of each stage
  int64_t samples = 0;        ///< of a step with the whole batch
  int micro_batches = 0;
  int64_t micro_batch = 0;                             ///< samples of the largest one
  const pipeline::ScheduleReport* schedule = nullptr;  ///< lives as long as the program

  /// Whether micro-batches differ by a sample.
  bool is_uneven() const { return micro_batches > 0 && samples % micro_batches != 0; }
};
/// Of a resolved configuration. The last replica has most samples, the first one fewest, whose micro-batches may be
/// larger all the same.
ReplicaPlan plan_replica(const StepConfig& config, int replica);

/// Where parameters and gradients of the rank at `place` lie: that of ModelRunner.
tensor::FlatLayout plan_flat_layout(const StepConfig& config, const ReplicaPlan& replica, ModelPlace place,
                                    c10::DeviceType device);

/// What the rank at `place` of the replica holds at most, in a training of a resolved configuration, as
/// MemoryTracker counts it: S. Rajbhandari et al., "ZeRO", SC20, section 3, for the model's state, of the padded
/// FlatLayout; model::activation_bytes(); what kernels take beside, and on the host the copy that checkpoints are
/// written from while training goes on. Evaluation figures are not in it.
MemoryPlan plan_memory(const StepConfig& config, const DataConfig& data, const ReplicaPlan& replica, ModelPlace place,
                       const ComputeTraits& compute);

/// The first stage that holds the same layers as this one, which is between the first and the last; else itself.
int first_alike(const std::vector<Range>& stages, int stage);

/// The first stage, the last, and of those between the first of each number of units: an earlier stage has more
/// micro-batches in flight, so these hold most. Ascending.
std::vector<int> telling_stages(const std::vector<Range>& stages);

/// The rank that grows most on the host, or holds most on a GPU, and what it holds.
struct FullestRank {
  int replica = 0;
  ModelPlace place;
  MemoryPlan memory;
};
/// Of each of the telling stages, of all replicas.
std::vector<FullestRank> plan_fullest_ranks(const StepConfig& config, const DataConfig& data,
                                            const ComputeTraits& compute);
/// Of all ranks.
FullestRank plan_fullest_rank(const StepConfig& config, const DataConfig& data, const ComputeTraits& compute);

}  // namespace vit_hybrid::train
