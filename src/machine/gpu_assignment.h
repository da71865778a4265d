// GpuAssignment: which GPU a rank computes on, from what all ranks see of their nodes.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/device/gpu_survey.h"
#include "src/base/error.h"
#include "src/config/run_config.h"

namespace vit_hybrid::train {

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

/// Why this precision cannot be had on a GPU, or, with null, on the CPU, which can do all of them.
std::optional<Error> precision_problem(Precision precision, const Gpu* gpu);

/// The environment variables, with their values, that have NCCL of this version ("2.28.9") take ranks that share a GPU.
std::vector<std::pair<std::string, std::string>> nccl_sharing_variables(const std::string& nccl_version, int rank);

}  // namespace vit_hybrid::train
