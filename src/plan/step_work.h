// StepWork, Traffic: a training step as kinds of work with their sizes (src/machine/machine_file.h), and as bytes that
// groups of the mesh and nodes send.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/vit_costs.h"
#include "parallel/mesh/device_mesh.h"
#include "src/config/run_config.h"
#include "src/machine/machine_file.h"
#include "src/plan/memory_plan.h"

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
  std::vector<KernelWork> beside_sums;  ///< of `backward`, weight gradients beside which tensor ranks sum
  double forward_operations = 0.0;      ///< layers' operations, which cost something beside their kernels
  double backward_operations = 0.0;
};

/// Of `samples` samples on a rank of the tensor group.
PassWork pass_work(const model::VitOptions& model, model::Recompute recompute, Range units, model::TensorPlace tensor,
                   int64_t samples);

/// What a rank does once a step, beside messages: packing of `parameters` weights, zeroing and norm of the gradients,
/// and the update of the `owned` elements.
struct UpdateWork {
  std::vector<KernelWork> packing;  ///< in forward and backward of the first micro-batch
  std::vector<KernelWork> norm;
  std::vector<KernelWork> update;
};
UpdateWork update_work(const model::VitOptions& model, Range units, model::TensorPlace tensor, int64_t parameters,
                       int64_t owned);

/// Seconds of the kernels, by the rates of `tables`; kinds that it lacks take no time.
double seconds_of(const std::vector<KernelWork>& works, const RateTables& tables);

// Traffic: how many bytes a training step moves over each group of the mesh, and between nodes, before anything runs.

/// Of one rank and one of its groups, in a step with the whole batch.
struct GroupTraffic {
  int64_t operations = 0;  ///< collectives, or messages sent
  int64_t bytes = 0;       ///< as comm::statistics() counts them: of the larger tensor of each, of what is sent
};
using Traffic = std::array<GroupTraffic, mesh::kNumGroups>;  ///< by mesh::Group

/// What gradients, parameters and activations take of the groups of the rank at `place` of the replica; a group of one
/// rank moves nothing. The few numbers of norms and losses are not counted.
Traffic plan_traffic(const StepConfig& config, const ReplicaPlan& replica, ModelPlace place, c10::DeviceType device);

/// The least bytes of a step for each kind of group, by mesh::Group.
struct LeastBytes {
  std::array<double, mesh::kNumGroups> within{};   ///< that the ranks of the first node send to each other
  std::array<double, mesh::kNumGroups> between{};  ///< that leave it
};

/// Where nodes hold `ranks_per_node` consecutive ranks and each byte crosses once: of a sum of V bytes each of k nodes
/// sends 2 V (k - 1) / k, of its halves (ZeRO-1) V (k - 1) / k (R. Rabenseifner, "Optimization of collective reduction
/// operations", ICCS 2004, section 2), and each of the m ranks that the group has on the first node V (m - 1) / m for
/// each half.
LeastBytes plan_least_bytes(const StepConfig& config, const ReplicaPlan& replica, int ranks_per_node,
                            c10::DeviceType device);

}  // namespace vit_hybrid::train
