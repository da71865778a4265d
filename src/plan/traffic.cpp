// Payloads by group, and the groups that span nodes.
#include "src/plan/traffic.h"

#include <algorithm>
#include <set>

#include "model/vit_costs.h"
#include "parallel/tensor/step_context.h"

namespace vit_hybrid::train {

namespace {

using mesh::Axis;
using mesh::Group;

GroupTraffic& of(Traffic& traffic, Group group) {
  return traffic[static_cast<size_t>(group)];
}

// Gradients, and the parameters where they are gathered.
void add_data_traffic(const RunConfig& config, const tensor::FlatLayout& flat, Traffic& traffic) {
  const zero::PrecisionPolicy policy = precision_policy(config.precision);
  const bool cuts_data = parallel_dims(config.parallel).cuts_data();
  const int64_t gathers = flat.shards > 1 ? 1 : 0;
  of(traffic, cuts_data ? Group::kShard : Group::kData) = {
      std::ssize(flat.buckets) * (1 + gathers),
      flat.size * (size_of(policy.reduce) + gathers * size_of(policy.compute))};
  if (cuts_data) {
    of(traffic, Group::kReplica) = {std::ssize(flat.buckets), flat.size / flat.shards * size_of(policy.reduce)};
  }
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
    add_data_traffic(config, plan_flat_layout(config, replica, place, device), traffic);
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
    of(traffic, Group::kTensor) = {sums * parts, sums * activation};
  }
  if (parallel.pp > 1) {
    const int neighbours = (place.stage > 0 ? 1 : 0) + (place.stage + 1 < parallel.pp ? 1 : 0);
    of(traffic, Group::kPipeline) = {neighbours * replica.micro_batches, neighbours * activation};
  }
  return traffic;
}

std::array<double, mesh::kNumGroups> plan_bytes_between_nodes(const RunConfig& config, const ReplicaPlan& replica,
                                                              int ranks_per_node, c10::DeviceType device) {
  const ParallelConfig& parallel = config.parallel;
  const mesh::ParallelDims dims = parallel_dims(parallel);
  const auto node_of = [&](int rank) { return rank / ranks_per_node; };
  std::array<double, mesh::kNumGroups> bytes{};
  if (ranks_per_node >= dims.size()) {
    return bytes;
  }
  std::vector<Traffic> of_stage;
  for (int stage = 0; stage < parallel.pp; ++stage) {
    of_stage.push_back(plan_traffic(config, replica, {stage, parallel.tp - 1}, device));
  }
  for (const Group group : mesh::kGroups) {
    for (int rank = 0; rank < std::min(ranks_per_node, dims.size()); ++rank) {
      const auto members = dims.members(rank, group);
      const mesh::Coordinate at = dims.coordinate(rank);
      const auto payload =
          static_cast<double>(of_stage[static_cast<size_t>(on(at, Axis::kPipeline))][static_cast<size_t>(group)].bytes);
      double& sum = bytes[static_cast<size_t>(group)];
      if (group == Group::kPipeline) {  // to each neighbour as much
        const int stage = on(at, Axis::kPipeline);
        const auto crosses = [&](int to) {
          return to >= 0 && to < parallel.pp && node_of(members[static_cast<size_t>(to)]) != 0;
        };
        const int neighbours = (stage > 0 ? 1 : 0) + (stage + 1 < parallel.pp ? 1 : 0);
        sum += neighbours == 0 ? 0.0 : payload / neighbours * (int{crosses(stage - 1)} + int{crosses(stage + 1)});
        continue;
      }
      if (members.front() != rank) {
        continue;  // once for each group
      }
      std::set<int> nodes;
      std::transform(members.begin(), members.end(), std::inserter(nodes, nodes.end()), node_of);
      const auto count = static_cast<double>(nodes.size());
      // The payload of ZeRO-1 counts both halves.
      const bool counts_halves =
          group == Group::kShard || (group == Group::kData && parallel.state_shards() > 1 && !dims.cuts_data());
      const double halves = counts_halves ? 1.0 : 2.0;
      sum += halves * payload * (count - 1.0) / count;
    }
  }
  return bytes;
}

}  // namespace vit_hybrid::train
