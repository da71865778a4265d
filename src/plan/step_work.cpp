// StepWork: the kernels of blocks, embedding and head; the messages of each axis.
#include "src/plan/step_work.h"

#include <algorithm>
#include <map>

#include "model/vit_costs.h"
#include "parallel/tensor/step_context.h"
#include "src/base/partition.h"

namespace vit_hybrid::train {

namespace {

using Works = std::vector<KernelWork>;

// Elementwise work, whose rate depends on its size alone.
KernelWork rows(const char* kind, int64_t elements, double count = 1.0) {
  const auto size = static_cast<double>(elements);
  return {kind, {size}, size, count};
}

KernelWork product(const char* kind, const model::LinearLayer& layer) {
  const auto m = static_cast<double>(layer.rows), k = static_cast<double>(layer.inputs),
             n = static_cast<double>(layer.outputs);
  return {kind, {m, k, n}, 2.0 * m * k * n};
}

// Cut by columns: the gradient of its input is a sum over tensor ranks. --recompute selective computes it twice.
bool is_first_of_sublayer(model::LinearRole role) {
  return role == model::LinearRole::kQkv || role == model::LinearRole::kFc1;
}

bool is_of_block(model::LinearRole role) {
  using model::LinearRole;
  return role == LinearRole::kQkv || role == LinearRole::kProjection || role == LinearRole::kFc1 ||
         role == LinearRole::kFc2;
}

// The layers of all units, one after the other.
void add_products(model::Recompute recompute, const std::vector<model::LinearLayer>& layers, PassWork& out) {
  for (const model::LinearLayer& layer : layers) {
    out.forward.push_back(product("product_forward", layer));
    ++out.forward_operations;
    const bool again = recompute == model::Recompute::kFull
                           ? is_of_block(layer.role)
                           : recompute == model::Recompute::kSelective && is_first_of_sublayer(layer.role);
    if (again) {
      out.backward.push_back(product("product_forward", layer));
    }
    out.backward.push_back(product("product_weight", layer));
    if (is_first_of_sublayer(layer.role)) {
      out.beside_sums.push_back(out.backward.back());
    }
    if (layer.role != model::LinearRole::kPatches) {
      out.backward.push_back(product("product_input", layer));
    }
    ++out.backward_operations;
  }
}

// What a block does beside its linear layers, of so many blocks.
void add_blocks(const model::VitOptions& model, model::Recompute recompute, model::TensorPlace tensor, int64_t samples,
                double blocks, PassWork& out) {
  const int64_t tokens = model.num_tokens(), stream = samples * tokens * model.embed_dim;
  const int64_t heads = Partition(model.num_heads, tensor.size).part(tensor.rank).size();
  const int64_t hidden = samples * tokens * Partition(model.mlp_hidden, tensor.size).part(tensor.rank).size();
  const auto n = static_cast<double>(tokens);
  const double flops = 4.0 * static_cast<double>(samples) * n * n * static_cast<double>(heads * model.head_dim());
  const std::vector<double> shape = {n, static_cast<double>(model.head_dim())};
  Works forward = {rows("norm_forward", stream, 2.0 * blocks),
                   {"attention_forward", shape, flops, blocks},
                   rows("gelu_forward", hidden, blocks)};
  Works backward = {rows("norm_backward", stream, 2.0 * blocks),
                    {"attention_backward", shape, 2.0 * flops, blocks},
                    rows("gelu_backward", hidden, blocks)};
  if (model.dropout > 0.0) {
    for (Works* const pass : {&forward, &backward}) {
      pass->push_back(rows("dropout", stream, 2.0 * blocks));
      pass->push_back(rows("dropout", hidden, blocks));
    }
  }
  if (recompute == model::Recompute::kFull) {
    backward.insert(backward.end(), forward.begin(), forward.end());
  }
  out.forward.insert(out.forward.end(), forward.begin(), forward.end());
  out.backward.insert(out.backward.end(), backward.begin(), backward.end());
  constexpr double kOthers = 3.0;  // two norms and attention
  out.forward_operations += kOthers * blocks;
  out.backward_operations += kOthers * blocks;
}

}  // namespace

PassWork pass_work(const model::VitOptions& model, model::Recompute recompute, Range units, model::TensorPlace tensor,
                   int64_t samples) {
  PassWork out;
  if (samples == 0) {
    return out;
  }
  add_products(recompute, model::linear_layers(model, units, tensor, samples), out);
  if (const auto blocks = static_cast<double>(model::num_blocks(model, units)); blocks > 0.0) {
    add_blocks(model, recompute, tensor, samples, blocks, out);
  }
  const int64_t number = static_cast<int64_t>(sizeof(float)), pixels = model.image_height * model.image_width;
  const int64_t stream = samples * model.num_tokens() * model.embed_dim;
  if (units.begin == 0) {  // normalized, and cut into patches; positions are added, and summed in backward
    out.forward.push_back(rows("stream", 4 * number * samples * model.in_channels * pixels));
    out.forward.push_back(rows("stream", 2 * number * stream));
    out.backward.push_back(rows("stream", number * stream));
  }
  if (units.end == model.num_units()) {
    out.forward.push_back(rows("norm_forward", stream));
    out.backward.push_back(rows("norm_backward", stream));
    if (model.task == model::Task::kForecast) {
      // Truth normalized; prediction and truth read in each pass, a gradient written.
      const int64_t fields = number * samples * model.out_channels * pixels;
      out.forward.push_back(rows("stream", 4 * fields));
      out.backward.push_back(rows("stream", 3 * fields));
    }
  }
  return out;
}

UpdateWork update_work(const model::VitOptions& model, Range units, model::TensorPlace tensor, int64_t parameters,
                       int64_t owned) {
  UpdateWork out;
  for (const model::LinearLayer& layer : model::linear_layers(model, units, tensor, 1)) {
    out.packing.push_back(rows("packing", layer.inputs * layer.outputs));
  }
  const int64_t number = static_cast<int64_t>(sizeof(float));
  out.packing.push_back(rows("stream", number * parameters));  // gradients are zeroed
  out.norm.push_back(rows("stream", number * owned));
  out.update.push_back(rows("optimizer", owned));
  return out;
}

double seconds_of(const std::vector<KernelWork>& works, const RateTables& tables) {
  double seconds = 0.0;
  for (const KernelWork& one : works) {
    if (const auto table = tables.find(one.kind); table != tables.end() && one.work > 0.0) {
      seconds += one.count * one.work / table->second.at(one.sizes);
    }
  }
  return seconds;
}

namespace {

using mesh::Axis;
using mesh::Group;

GroupTraffic& of(Traffic& traffic, Group group) {
  return traffic[static_cast<size_t>(group)];
}

// Gradients, and the parameters where they are gathered.
void add_data_traffic(const StepConfig& config, const tensor::FlatLayout& flat, Traffic& traffic) {
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

Traffic plan_traffic(const StepConfig& config, const ReplicaPlan& replica, ModelPlace place, c10::DeviceType device) {
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

LeastBytes plan_least_bytes(const StepConfig& config, const ReplicaPlan& replica, int ranks_per_node,
                            c10::DeviceType device) {
  const ParallelConfig& parallel = config.parallel;
  const mesh::ParallelDims dims = parallel_dims(parallel);
  const auto node_of = [&](int rank) { return rank / ranks_per_node; };
  // Collectives are counted once for each group, messages of stages at each of them.
  const auto is_first = [&](const mesh::Coordinate& at, Group group) {
    const int replica_at = on(at, Axis::kData);
    return group == Group::kPipeline || (group == Group::kTensor && on(at, Axis::kTensor) == 0) ||
           (group == Group::kData && replica_at == 0) || (group == Group::kShard && replica_at % dims.shard() == 0) ||
           (group == Group::kReplica && replica_at < dims.shard());
  };
  LeastBytes bytes;
  std::vector<Traffic> of_stage;
  for (int stage = 0; stage < parallel.pp; ++stage) {
    const int alike = first_alike(replica.stages, stage);
    of_stage.push_back(alike < stage ? of_stage[static_cast<size_t>(alike)]
                                     : plan_traffic(config, replica, {stage, parallel.tp - 1}, device));
  }
  for (const Group group : mesh::kGroups) {
    double& within = bytes.within[static_cast<size_t>(group)];
    double& between = bytes.between[static_cast<size_t>(group)];
    for (int rank = 0; rank < std::min(ranks_per_node, dims.size()); ++rank) {
      const mesh::Coordinate at = dims.coordinate(rank);
      const auto payload =
          static_cast<double>(of_stage[static_cast<size_t>(on(at, Axis::kPipeline))][static_cast<size_t>(group)].bytes);
      if (payload == 0.0 || !is_first(at, group)) {
        continue;
      }
      const auto members = dims.members(rank, group);
      if (group == Group::kPipeline) {  // to each neighbour as much
        const int stage = on(at, Axis::kPipeline);
        const int neighbours = (stage > 0 ? 1 : 0) + (stage + 1 < parallel.pp ? 1 : 0);
        for (const int to : {stage - 1, stage + 1}) {
          if (to >= 0 && to < parallel.pp) {
            (node_of(members[static_cast<size_t>(to)]) == 0 ? within : between) += payload / neighbours;
          }
        }
        continue;
      }
      std::map<int, int> on_node;
      for (const int member : members) {
        ++on_node[node_of(member)];
      }
      const auto nodes = static_cast<double>(on_node.size());
      // The payload of ZeRO-1 counts both halves.
      const bool counts_halves =
          group == Group::kShard || (group == Group::kData && parallel.state_shards() > 1 && !dims.cuts_data());
      const double halves = counts_halves ? 1.0 : 2.0;
      within += halves * payload * (on_node[0] - 1);
      between += halves * payload * (nodes - 1.0) / nodes;
    }
  }
  return bytes;
}

}  // namespace vit_hybrid::train
