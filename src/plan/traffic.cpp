// Payloads by axis, and the groups that span nodes.
#include "src/plan/traffic.h"

#include <algorithm>
#include <set>

#include "model/vit_costs.h"
#include "parallel/tensor/step_context.h"

namespace vit_hybrid::train {

namespace {

using mesh::Axis;

AxisTraffic& of(Traffic& traffic, Axis axis) {
  return traffic[static_cast<size_t>(axis)];
}

}  // namespace

Traffic plan_traffic(const RunConfig& config, const ReplicaPlan& replica, ModelPlace place, c10::DeviceType device) {
  const ParallelConfig& parallel = config.parallel;
  const zero::PrecisionPolicy policy = precision_policy(config.precision);
  const Range units = replica.stages[static_cast<size_t>(place.stage)];
  const int64_t activation =
      replica.samples * config.model.num_tokens() * config.model.embed_dim * size_of(policy.compute);
  Traffic traffic;
  if (parallel.dp > 1) {
    const auto flat = plan_flat_layout(config, replica, place, device);
    const int64_t gathers = parallel.zero > 0 ? 1 : 0;
    of(traffic, Axis::kData) = {std::ssize(flat.buckets) * (1 + gathers),
                                flat.size * (size_of(policy.reduce) + gathers * size_of(policy.compute))};
  }
  if (parallel.tp > 1) {
    // M. Shoeybi et al., "Megatron-LM", arXiv:1909.08053, section 3: two sums forward and two backward, and forward's
    // again where the whole block is computed again.
    const int64_t sums = model::num_blocks(config.model, units) * (config.recompute == model::Recompute::kFull ? 6 : 4);
    const Partition micro_batches(replica.samples, std::max(replica.micro_batches, 1));
    int64_t parts = 0;
    for (int i = 0; i < replica.micro_batches; ++i) {
      parts += tensor::parts_of(micro_batches.part(i).size(), parallel.micro_batch_parts()).parts();
    }
    of(traffic, Axis::kTensor) = {sums * parts, sums * activation};
  }
  if (parallel.pp > 1) {
    const int neighbours = (place.stage > 0 ? 1 : 0) + (place.stage + 1 < parallel.pp ? 1 : 0);
    of(traffic, Axis::kPipeline) = {neighbours * replica.micro_batches, neighbours * activation};
  }
  return traffic;
}

std::array<double, mesh::kNumAxes> plan_bytes_between_nodes(const RunConfig& config, const ReplicaPlan& replica,
                                                            int ranks_per_node, c10::DeviceType device) {
  const ParallelConfig& parallel = config.parallel;
  const mesh::ParallelDims dims(parallel.dp, parallel.tp, parallel.pp, parallel.order);
  const auto node_of = [&](int rank) { return rank / ranks_per_node; };
  std::array<double, mesh::kNumAxes> bytes{};
  if (ranks_per_node >= dims.size()) {
    return bytes;
  }
  std::vector<Traffic> of_stage;
  for (int stage = 0; stage < parallel.pp; ++stage) {
    of_stage.push_back(plan_traffic(config, replica, {stage, parallel.tp - 1}, device));
  }
  for (const Axis axis : mesh::kAxes) {
    for (int rank = 0; rank < std::min(ranks_per_node, dims.size()); ++rank) {
      const auto group = dims.group(rank, {axis});
      const mesh::Coordinate at = dims.coordinate(rank);
      const auto payload =
          static_cast<double>(of_stage[static_cast<size_t>(on(at, Axis::kPipeline))][static_cast<size_t>(axis)].bytes);
      double& sum = bytes[static_cast<size_t>(axis)];
      if (axis == Axis::kPipeline) {  // to each neighbour as much
        const int stage = on(at, axis);
        const auto crosses = [&](int to) {
          return to >= 0 && to < parallel.pp && node_of(group[static_cast<size_t>(to)]) != 0;
        };
        const int neighbours = (stage > 0 ? 1 : 0) + (stage + 1 < parallel.pp ? 1 : 0);
        sum += neighbours == 0 ? 0.0 : payload / neighbours * (int{crosses(stage - 1)} + int{crosses(stage + 1)});
        continue;
      }
      if (group.front() != rank) {
        continue;  // once for each group
      }
      std::set<int> nodes;
      std::transform(group.begin(), group.end(), std::inserter(nodes, nodes.end()), node_of);
      const auto count = static_cast<double>(nodes.size());
      // The payload of ZeRO-1 counts both halves.
      const double halves = axis == Axis::kData && parallel.zero > 0 ? 1.0 : 2.0;
      sum += halves * payload * (count - 1.0) / count;
    }
  }
  return bytes;
}

}  // namespace vit_hybrid::train
