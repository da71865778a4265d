// Traffic: how many bytes a training step moves over each group of the mesh, and between nodes, before anything runs.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>

#include "parallel/mesh/device_mesh.h"
#include "src/config/run_config.h"
#include "src/plan/memory_plan.h"

namespace vit_hybrid::train {

/// Of one rank and one of its groups, in a step with the whole batch.
struct GroupTraffic {
  int64_t operations = 0;  ///< collectives, or messages sent
  int64_t bytes = 0;       ///< as comm::statistics() counts them: of the larger tensor of each, of what is sent
};
using Traffic = std::array<GroupTraffic, mesh::kNumGroups>;  ///< by mesh::Group

/// What gradients, parameters and activations take of the groups of the rank at `place` of the replica; a group of one
/// rank moves nothing. The few numbers of norms and losses are not counted.
Traffic plan_traffic(const RunConfig& config, const ReplicaPlan& replica, ModelPlace place, c10::DeviceType device);

/// The least bytes that leave the first node for each kind of group, where nodes hold `ranks_per_node` consecutive
/// ranks and each byte crosses once: of a sum of V bytes over k nodes each sends 2 V (k - 1) / k, of its halves
/// (ZeRO-1) V (k - 1) / k (R. Rabenseifner, "Optimization of collective reduction operations", ICCS 2004, section 2).
std::array<double, mesh::kNumGroups> plan_bytes_between_nodes(const RunConfig& config, const ReplicaPlan& replica,
                                                              int ranks_per_node, c10::DeviceType device);

}  // namespace vit_hybrid::train
