// What a model takes of memory at least, and what there is: a model that cannot fit is refused before it is made.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/config/run_config.h"

namespace vit_hybrid::train {

enum class ModelPurpose { kTraining, kUse };

struct RankBytes {
  double of_model = 0.0;  ///< in the memory of the device
  double of_data = 0.0;   ///< in the memory of the host
};

/// Bytes that a rank of `config` (resolved) takes on average, at least: parameters, and in training their gradients,
/// the optimizer's state and the inputs of one micro-batch's blocks; and generated data. Closed forms, which do not
/// overflow. Some rank takes as much or more. Pure.
RankBytes least_bytes_per_rank(const StepConfig& config, const DataConfig& data, ModelPurpose purpose);

/// Of data that are generated at the start and kept, by each rank.
double generated_bytes(const DataConfig& data, const model::VitOptions& model);

/// Memory that the processes of this node may take together: the machine's, or less where a cgroup says so
/// (memory.max, or memory.limit_in_bytes). 0 where the system does not say. `root`: where /proc and /sys are.
int64_t node_memory_bytes(const std::string& root = "");

/// What is wrong with a model that takes `bytes_per_rank`, where `ranks` ranks share `available` bytes of `where`;
/// empty where it may fit, or nothing is known (0). Pure.
std::string memory_problem(const model::VitOptions& model, const ParallelConfig& parallel, double bytes_per_rank,
                           int ranks, int64_t available, const std::string& where);

/// Error(kUsage), agreed, for a model that cannot fit into the nodes (or GPUs), taken to be alike. Collective over
/// `world`.
void check_model_memory(const StepConfig& config, const DataConfig& data, c10::Device device, ModelPurpose purpose,
                        const comm::MpiGroup& world);

}  // namespace vit_hybrid::train
