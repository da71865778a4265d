// MemoryPlan: the closed forms, class by class.
#include "src/plan/memory_plan.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <tuple>

#include "data/loading/sampler.h"
#include "model/vit_costs.h"
#include "model/vit_parameters.h"
#include "parallel/tensor/step_context.h"
#include "parallel/zero/rules/update_rule.h"
#include "src/base/shareable_tensor.h"
#include "src/kernels/attention/attend.h"
#include "src/kernels/attention/blocked_attention.h"
#include "src/kernels/gemm/device_products.h"
#include "src/machine/device.h"
#include "src/machine/model_memory.h"

namespace vit_hybrid::train {

namespace {

int64_t& of_class(ClassBytes& bytes, MemoryClass memory_class) {
  return bytes[static_cast<size_t>(memory_class)];
}

int64_t attention_bytes(const model::VitOptions& model, int64_t samples, int64_t heads, at::ScalarType type,
                        int threads) {
  const bool with_dropout = model.attention_dropout > 0.0;
  const auto kernel = kernels::choose_attention_kernel(at::kCPU, type, with_dropout);
  if (heads == 0 || kernel != kernels::AttentionKernel::kBlocked) {
    return 0;
  }
  return kernels::blocked_attention_bytes({samples, model.num_tokens(), heads, model.head_dim()}, type, with_dropout,
                                          threads);
}

// Of the prediction that is scored, as it is computed and, where that is of another type, as its loss takes it.
int64_t score_bytes(const model::VitOptions& model, int64_t micro_batch, const zero::PrecisionPolicy& policy) {
  const int64_t wide = policy.compute == policy.master ? 0 : size_of(policy.master);
  return micro_batch * model.out_channels * model.image_height * model.image_width * (size_of(policy.compute) + wide);
}

// Samples, by the options and by the files; 0: not known.
int64_t number_of(int64_t known, int64_t in_files) {
  return known > 0 && in_files > 0 ? std::min(known, in_files) : std::max(known, in_files);
}

// Micro-batches of a validation that are read ahead, beside the one in work.
int64_t valid_read_ahead(const StepConfig& config, const DataConfig& data, const ReplicaPlan& replica,
                         int64_t read_ahead) {
  const int64_t samples = number_of(data.known_valid_samples(), data.valid_images);
  if (samples == 0) {
    return read_ahead;
  }
  const auto micro_batches = [&](int64_t batch) {
    const int64_t own = Partition(batch, config.parallel.dp).part(replica.replica).size();
    return data::num_micro_batches(own, config.parallel.micro_batch_size);
  };
  const int64_t all = samples / data.valid_batch_size * micro_batches(data.valid_batch_size) +
                      micro_batches(samples % data.valid_batch_size);
  return std::min(read_ahead, std::max<int64_t>(all - 1, 0));
}

// Samples of the micro-batch that ends an epoch of so many (0: not known), where a TensorPool makes memory for it
// beside that of the others, which is more than twice as large; else 0.
int64_t last_of_epoch(const StepConfig& config, const ReplicaPlan& replica, int64_t samples, int64_t batch) {
  if (samples == 0) {
    return std::max<int64_t>(replica.micro_batch - 1, 0) / 2;
  }
  const int64_t own = Partition(samples % batch, config.parallel.dp).part(replica.replica).size();
  const int64_t micro_batches = data::num_micro_batches(own, config.parallel.micro_batch_size);
  const int64_t last = micro_batches > 0 ? Partition(own, micro_batches).largest() : 0;
  return 2 * last < replica.micro_batch ? last : 0;
}

struct DataBytes {
  int64_t all = 0;
  int64_t on_host = 0;  // of these, where the rank computes on a GPU
};

// Batches as they are read, in fp32; what the model and the loss take, where that is of another type; and the fields
// that are generated at the start. A GPU has those in flight, the next one, and what the model takes.
DataBytes data_bytes(const StepConfig& config, const DataConfig& data, const ReplicaPlan& replica, ModelPlace place,
                     const zero::PrecisionPolicy& policy, const ComputeTraits& compute) {
  const model::VitOptions& model = config.model;
  const bool is_first = place.stage == 0, is_last = place.stage + 1 == config.parallel.pp;
  const int64_t pixels = replica.micro_batch * model.image_height * model.image_width;
  const int64_t input = is_first ? model.in_channels * pixels : 0;
  const int64_t target = is_last && config.is_forecast() ? model.out_channels * pixels : 0;
  // What validation compares a forecast with, and increments are to be added to: a part of the input, or read apart.
  const int64_t present = is_last && config.is_forecast() ? model.out_channels * pixels : 0;
  const bool is_apart = !is_first || !data.roles.diagnostics.empty();
  const int64_t valid_input = input + (is_apart ? present : 0);
  // A GPU normalizes what is taken; on the host the threads that read have done so.
  const bool is_scaled = data.kind == DataKind::kHdf5 && compute.device != c10::DeviceType::CPU;
  const auto converted = [is_scaled](int64_t numbers, at::ScalarType type) {
    return type == at::kFloat && !is_scaled ? 0 : numbers * size_of(type);
  };
  const bool adds = data.target == TargetKind::kIncrement;
  const int64_t batch = (input + target + (adds && is_apart ? present : 0)) * size_of(at::kFloat);
  // Images are read, cut or painted as bytes before they are numbers (on a GPU they become that there); of training
  // with those that they are mixed with.
  const bool has_images = data.kind != DataKind::kSynthetic && !config.is_forecast();
  const bool paints = data.kind == DataKind::kBuiltin && has_images;
  const int64_t stored = data.kind == DataKind::kHdf5 ? replica.micro_batch * data.image_bytes : 0;
  const int64_t image_bytes = has_images && is_first && compute.device == c10::DeviceType::CPU ? stored + input : 0;
  const int64_t mixed = data.mixup > 0.0 ? 2 : 1;
  const int64_t read = batch + (mixed - 1) * input * size_of(at::kFloat);
  // Increments are computed beside the states.
  const int64_t own = converted(input, policy.compute) + converted(target, policy.master) +
                      (adds ? converted(present, policy.master) + target * size_of(policy.master) : 0);
  const int64_t in_flight = replica.schedule->peak_in_flight[static_cast<size_t>(place.stage)];
  const int64_t read_ahead = compute.read_ahead;
  // Tensor ranks that share the reading of files hold, beside the batch that they join, their own share of it and what
  // the others have read of one of its tensors; what is read ahead is shares.
  const int64_t tp = data.kind == DataKind::kHdf5 && config.is_forecast() ? config.parallel.tp : 1;
  const int64_t joined = (read_ahead + 1) * read + (tp - 1) * std::max(input, target) * size_of(at::kFloat);
  const int64_t ahead = std::max(read_ahead * read, tp > 1 ? joined / tp : 0);
  const bool has_pool = data.kind == DataKind::kHdf5 || data.kind == DataKind::kSynthetic || paints;
  const auto last = [&](int64_t samples, int64_t batch_size, int64_t bytes) {
    const int64_t of_epoch = has_pool ? last_of_epoch(config, replica, samples, batch_size) : 0;
    return of_epoch * bytes / std::max<int64_t>(replica.micro_batch, 1);
  };
  const int64_t training = ahead + in_flight * read + compute.reading_threads * mixed * image_bytes +
                           (data.drop_last ? 0
                                           : last(number_of(data.known_samples(), data.images),
                                                  config.global_batch_size, read + mixed * image_bytes));
  const bool validates = data.has_validation();
  const int64_t valid_batch = validates ? (valid_input + target) * size_of(at::kFloat) : 0;
  const int64_t valid_images = validates ? image_bytes : 0;
  const int64_t validation =
      (valid_read_ahead(config, data, replica, read_ahead) + 1) * valid_batch + compute.reading_threads * valid_images +
      last(number_of(data.known_valid_samples(), data.valid_images), data.valid_batch_size, valid_batch + valid_images);
  // Without backwards a first stage takes the next micro-batch while the last one's is still held.
  const int64_t next_input = config.parallel.pp > 1 ? converted(input, policy.compute) : 0;
  const int64_t valid_own = validates ? own + next_input + converted(present, policy.master) : 0;
  // What is read ahead of training stays while validation reads ahead, too; and a TensorPool keeps for the next ones
  // the memory of all batches that its data set has had in work, those of validation also while training goes on.
  const int64_t batches = has_pool ? training + validation + std::max(in_flight * own, valid_own)
                                   : std::max(training + in_flight * own, read_ahead * batch + validation + valid_own);
  // Each data set keeps its own.
  const int64_t of_data_set = compute.reading_threads * data.decoding_bytes + data.static_bytes;
  const int64_t of_validation = validates ? of_data_set + data.climatology_bytes : 0;
  // The means over time of each year that is generated are there until its fields are normalized.
  const bool generates = data.kind == DataKind::kBuiltin && config.is_forecast();
  const int64_t state = model.in_channels * model.image_height * model.image_width * size_of(at::kFloat);
  const int64_t generating = generates ? (validates ? 2 : 1) * state : 0;
  const int64_t all =
      static_cast<int64_t>(generated_bytes(data, model)) + std::max(batches, generating) + of_data_set + of_validation;
  if (compute.device == c10::DeviceType::CPU) {
    return {all, 0};
  }
  const int64_t next = std::max(batch, valid_batch);
  // A record has an input and a target of its own, of each size of micro-batch.
  const int64_t recorded =
      records_micro_batches(config, c10::Device(compute.device, 0))
          ? (replica.is_uneven() ? 2 : 1) * (input * size_of(policy.compute) + target * size_of(policy.master))
          : 0;
  return {all + next + recorded, all - std::max(in_flight * (batch + own), valid_batch + valid_own)};
}

// Over the backwards of the step, and the forwards before them: micro-batches differ by a sample. Of the parts of one
// one is in backward, and the gradients of the others wait.
model::ActivationBytes most_activations(const StepConfig& config, const ReplicaPlan& replica, ModelPlace place,
                                        Range units, at::ScalarType type) {
  const Partition sizes(replica.samples, std::max(replica.micro_batches, 1));
  const auto bytes_of = [&](const model::HeldSamples& held) {
    return model::activation_bytes(config.model, units, {place.tensor_rank, config.parallel.tp}, config.recompute, type,
                                   held);
  };
  model::ActivationBytes most;
  for (const pipeline::HeldAtBackward& held : replica.schedule->at_backwards[static_cast<size_t>(place.stage)]) {
    const int64_t samples = sizes.part(held.micro_batch).size();
    const int64_t part = tensor::parts_of(samples, config.parallel.micro_batch_parts()).largest();
    int64_t early = samples - part;
    for (const int micro_batch : held.received) {
      early += sizes.part(micro_batch).size();
    }
    const Range last = sizes.part(held.end_of_begun - 1);
    const int64_t in_flight = last.end - sizes.part(held.micro_batch).begin;
    const model::ActivationBytes bytes = bytes_of({in_flight, part, early});
    const int64_t in_forward =
        bytes_of({in_flight - last.size(), 0, 0}).peak +
        model::forward_activation_bytes(config.model, units, {place.tensor_rank, config.parallel.tp}, config.recompute,
                                        type, last.size());
    most = {std::max({most.peak, bytes.peak, in_forward}), std::max(most.in_attention, bytes.in_attention),
            std::max(most.in_embedding, bytes.in_embedding)};
  }
  return most;
}

comm::TransportOptions planned_transport(const StepConfig& config, const ComputeTraits& compute) {
  const int ranks = parallel_dims(config.parallel).size();
  comm::TransportOptions options = transport_options(config.parallel);
  options.nodes = compute.nodes.empty() ? std::vector{ranks} : compute.nodes;
  options.sum_blocks = parse_sum_blocks(config.parallel.sum_blocks, ranks).value_or(options.nodes);
  return options;
}

// What ranks hold for the groups that span nodes.
int64_t group_bytes(const StepConfig& config, const ReplicaPlan& replica, ModelPlace place,
                    const tensor::FlatLayout& flat, const ComputeTraits& compute) {
  if (compute.nodes.size() <= 1) {
    return 0;
  }
  const ParallelConfig& parallel = config.parallel;
  const mesh::ParallelDims dims = parallel_dims(parallel);
  const zero::PrecisionPolicy policy = precision_policy(config.precision);
  const comm::TransportOptions options = planned_transport(config, compute);
  int64_t bucket = 0;
  for (const auto& one : flat.buckets) {
    bucket = std::max(bucket, one.range.size());
  }
  mesh::LongestSums longest{};
  const auto of = [&longest](mesh::Group group) -> comm::LongestSum& { return longest[static_cast<size_t>(group)]; };
  of(dims.cuts_data() ? mesh::Group::kShard : mesh::Group::kData) = {flat.shards > 1, bucket, size_of(policy.reduce)};
  of(mesh::Group::kReplica) = {false, bucket / flat.shards, size_of(policy.reduce)};
  const int64_t samples = tensor::parts_of(replica.micro_batch, parallel.micro_batch_parts()).largest();
  of(mesh::Group::kTensor) = {false, samples * config.model.num_tokens() * config.model.embed_dim,
                              size_of(policy.compute)};
  const int rank = dims.rank({replica.replica, place.tensor_rank, place.stage});
  return mesh::own_bytes_of_groups(dims, rank, compute.device, options, longest);
}

// Of gradients as they are reduced, and with ZeRO-1 of parameters, what this rank adds up or copies of those of its
// node.
int64_t shared_bytes(const StepConfig& config, const ReplicaPlan& replica, ModelPlace place,
                     const tensor::FlatLayout& flat, const ComputeTraits& compute) {
  if (compute.device != c10::DeviceType::CPU || !compute.shares) return 0;
  const zero::PrecisionPolicy policy = precision_policy(config.precision);
  const mesh::ParallelDims dims = parallel_dims(config.parallel);
  const int rank = dims.rank({replica.replica, place.tensor_rank, place.stage});
  const comm::TransportOptions options = planned_transport(config, compute);
  // Of so many bytes of each rank of a group its share of the others of its node; where `alone`, only if all are there.
  const auto of_others = [&](mesh::Group group, int64_t bytes, bool alone) -> int64_t {
    const int there = mesh::num_sharing_ranks(dims, rank, group, options);
    return alone && there < std::ssize(dims.members(rank, group)) ? 0 : bytes * (there - 1) / there;
  };
  const int64_t reduced = flat.size * size_of(policy.reduce);
  const mesh::Group all = dims.cuts_data() ? mesh::Group::kShard : mesh::Group::kData;
  return of_others(all, reduced, false) +
         (flat.shards > 1 ? of_others(all, flat.size * size_of(policy.compute), true) : 0) +
         (dims.cuts_data() ? of_others(mesh::Group::kReplica, reduced / flat.shards, false) : 0);
}

bool is_rank_0(const ReplicaPlan& replica, ModelPlace place) {
  return replica.replica == 0 && place.stage == 0 && place.tensor_rank == 0;
}

// HDF5 keeps what describes a checkpoint's tensors, on the rank that makes the file.
int64_t cache_of_checkpoints(const StepConfig& config) {
  const int64_t of_parameter = 1 + std::ssize(zero::optimizer_state_names(config.optimizer));
  return std::min<int64_t>(3 + config.model.depth * of_parameter / 6, 32) << 20;
}

// By docs/planner.md.
LibraryBytes library_bytes(const StepConfig& config, const ReplicaPlan& replica, ModelPlace place,
                           const ComputeTraits& compute, int64_t tensors) {
  constexpr int64_t kMiB = 1 << 20, kMost = 8 * kMiB, kMostOfOtherSizes = 6 * kMiB;
  constexpr int64_t kEachStep = 8, kLoss = 3, kImages = 4, kPeer = 1, kProductsInDouble = 4, kThread = 3;  // MiB
  const bool reads = place.stage == 0, scores = place.stage + 1 == config.parallel.pp;
  const bool has_images = (reads || scores) && !config.is_forecast();
  const int64_t on_node = compute.nodes.empty() ? std::numeric_limits<int>::max()
                                                : *std::max_element(compute.nodes.begin(), compute.nodes.end());
  LibraryBytes bytes;
  bytes.code = (kEachStep + (scores ? kLoss : 0) + (has_images ? kImages : 0)) * kMiB;
  if (precision_policy(config.precision).compute == at::kDouble) {
    const auto& vit = config.model;
    const int64_t largest_weight = vit.embed_dim * std::max(vit.embed_dim, vit.mlp_hidden / config.parallel.tp);
    bytes.mkl = kProductsInDouble * kMiB + std::min<int64_t>(largest_weight * sizeof(double), kMost);
  }
  bytes.slots = std::min<int64_t>(config.parallel.dp - 1 + config.parallel.tp - 1, on_node - 1) * kPeer * kMiB;
  bytes.threads = (compute.threads - 1) * kThread * kMiB;
  bytes.hdf5 = compute.saves && is_rank_0(replica, place) ? cache_of_checkpoints(config) : 0;
  bytes.freed = std::min(tensors / 12, kMost) + std::min(tensors / 64, kMost) +
                (replica.is_uneven() ? std::min(tensors / 24, kMostOfOtherSizes) : 0);  // blocks of two sizes
  return bytes;
}

// A channel of NCCL has 10 MiB for what comes over a connection, the buffers of its three protocols, and 2 MiB for what
// goes (NVIDIA/nccl, issue 1685); it takes 16 channels where GPUs have NVLink (issue 892), unless it is limited. A ring
// connects a rank once, trees of more than two ranks twice.
int64_t nccl_bytes(const ParallelConfig& parallel, ModelPlace place) {
  constexpr int64_t kConnection = 12 << 20;
  constexpr int kChannels = 16, kChannelsOfWorld = 2;
  const mesh::ParallelDims dims = parallel_dims(parallel);
  const auto of_sums = [](int ranks, int channels) {
    return ranks == 1 ? 0 : channels * (ranks > 2 ? 3 : 2) * kConnection;
  };
  const int of_data = parallel.dp_max_ctas > 0 ? std::min(parallel.dp_max_ctas, kChannels) : kChannels;
  const int neighbours = (place.stage > 0 ? 1 : 0) + (place.stage + 1 < parallel.pp ? 1 : 0);
  return of_sums(dims.size(), kChannelsOfWorld) + of_sums(parallel.tp, kChannels) +
         neighbours * kChannels * kConnection +
         (dims.cuts_data() ? of_sums(dims.shard(), of_data) + of_sums(dims.data() / dims.shard(), of_data)
                           : of_sums(dims.data(), of_data));
}

// Elements of the parameters that a rank writes for its stage, with replicas of it: what its tensor group holds alike
// the first of the group writes.
int64_t saved_elements(const StepConfig& config, Range units, ModelPlace place) {
  int64_t elements = 0;
  for (const auto& spec :
       model::parameter_specs(config.model, units, place.stage, place.tensor_rank, config.parallel.tp)) {
    elements += place.tensor_rank == 0 || !spec.replicated_over_tensor ? tensor::num_elements(spec.local_shape) : 0;
  }
  return elements;
}

// Simulating a long schedule takes seconds, and many layouts share one. Any thread.
const pipeline::ScheduleReport& schedule_report(const ParallelConfig& parallel, int micro_batches) {
  static std::map<std::tuple<std::string, int, int>, pipeline::ScheduleReport> known;
  static std::mutex mutex;
  const auto key = std::tuple(parallel.schedule, parallel.pp, micro_batches);
  {
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(key); found != known.end()) {
      return found->second;
    }
  }
  auto report = pipeline::check_schedule(pipeline::make_schedule(parallel.schedule, parallel.pp, micro_batches));
  const std::lock_guard lock(mutex);
  return known.emplace(key, std::move(report)).first->second;
}

}  // namespace

ComputeTraits compute_traits(const DataConfig& data, const CheckpointConfig& checkpoint, c10::Device device,
                             int threads) {
  const ReadAhead ahead = read_ahead(data, device, threads);
  ComputeTraits traits;
  traits.device = device.type();
  traits.threads = threads;
  traits.read_ahead = ahead.threads > 0 ? ahead.batches : 0;
  traits.reading_threads = std::max(ahead.threads, 1);
  traits.fp32 = kernels::host_kernel().kernel;
  traits.saves = checkpoint.keep > 0;
  traits.copies_state = checkpoint.copies_state();
  return traits;
}

ComputeTraits compute_traits(const DataConfig& data, const CheckpointConfig& checkpoint, c10::Device device,
                             const std::vector<int>& nodes) {
  ComputeTraits traits = compute_traits(data, checkpoint, device, at::get_num_threads());
  traits.nodes = nodes;
  traits.shares = !unshared();
  if (device.is_cuda()) {
    traits.capability = kernels::device_traits(device).capability;
  }
  return traits;
}

ReplicaPlan plan_replica(const StepConfig& config, int replica) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t samples = Partition(config.global_batch_size, parallel.dp).part(replica).size();
  const int64_t micro_batches = data::num_micro_batches(samples, parallel.micro_batch_size);
  return {replica,
          pipeline::partition_stages(model::unit_costs(config.model), parallel.pp),
          samples,
          static_cast<int>(micro_batches),
          micro_batches > 0 ? Partition(samples, micro_batches).largest() : 0,
          &schedule_report(parallel, static_cast<int>(micro_batches))};
}

tensor::FlatLayout plan_flat_layout(const StepConfig& config, const ReplicaPlan& replica, ModelPlace place,
                                    c10::DeviceType device) {
  const ParallelConfig& parallel = config.parallel;
  return tensor::flat_layout_of_sizes(
      model::slice_sizes(config.model, replica.stages[static_cast<size_t>(place.stage)], place.tensor_rank,
                         parallel.tp),
      tensor::bucket_elements(parallel.bucket_bytes(), precision_policy(config.precision).gradient, device),
      parallel.state_shards());
}

MemoryPlan plan_memory(const StepConfig& config, const DataConfig& data, const ReplicaPlan& replica, ModelPlace place,
                       const ComputeTraits& compute) {
  const ParallelConfig& parallel = config.parallel;
  const zero::PrecisionPolicy policy = precision_policy(config.precision);
  const Range units = replica.stages[static_cast<size_t>(place.stage)];
  const auto flat = plan_flat_layout(config, replica, place, compute.device);
  ClassBytes bytes{};
  of_class(bytes, MemoryClass::kParameters) = flat.size * size_of(policy.compute);
  of_class(bytes, MemoryClass::kGradients) = flat.size * size_of(policy.gradient);
  const int64_t states = std::ssize(zero::optimizer_state_names(config.optimizer));
  const int64_t kept = states + (policy.has_own_master() ? 1 : 0);
  of_class(bytes, MemoryClass::kOptimizer) = flat.size / flat.shards * kept * size_of(policy.master);
  const bool reduces_copies = policy.reduce != policy.gradient;
  of_class(bytes, MemoryClass::kCommunication) =
      (reduces_copies ? flat.size * size_of(policy.reduce) : 0) + group_bytes(config, replica, place, flat, compute);
  const model::ActivationBytes activations = most_activations(config, replica, place, units, policy.compute);
  of_class(bytes, MemoryClass::kActivations) = activations.peak;
  const DataBytes of_data = data_bytes(config, data, replica, place, policy, compute);
  of_class(bytes, MemoryClass::kData) = of_data.all;
  // The start draws each parameter in fp64, beside its master weights.
  const int64_t wide = size_of(at::kDouble) + (policy.has_own_master() ? size_of(policy.master) : 0);
  // The most that kernels take, and the most of it that comes on top of the peak of activations.
  int64_t drawing = 0, working = 0, on_top = 0;
  const auto takes = [&](int64_t workspace, int64_t missing) {  // activations that are not there then
    working = std::max(working, workspace);
    on_top = std::max(on_top, workspace - missing);
  };
  for (const Range& slot : flat.slots) {
    drawing = std::max(drawing, slot.size() * wide);
  }
  if (compute.device != c10::DeviceType::CPU) {
    takes(static_cast<int64_t>(kernels::product_workspace_bytes(compute.capability)), 0);
  } else {
    const int64_t samples = tensor::parts_of(replica.micro_batch, parallel.micro_batch_parts()).largest();
    for (const model::LinearLayer& layer :
         model::linear_layers(config.model, units, {place.tensor_rank, parallel.tp}, samples)) {
      const kernels::HostLayerUse use{policy.compute, policy.gradient, layer.role != model::LinearRole::kPatches,
                                      layer.role == model::LinearRole::kFc1};
      const auto of_layer =
          kernels::host_layer_bytes({layer.rows, layer.outputs, layer.inputs}, use, compute.fp32, compute.threads);
      of_class(bytes, MemoryClass::kPackedWeights) += of_layer.packed;
      // The gradient of fc2's input is there only after fc2's products with it, forward and of its weight, are done;
      // most of a backward is over when the embedding's begins, and the MLP's when attention's does.
      const int64_t missing = layer.role == model::LinearRole::kFc2
                                  ? layer.rows * layer.inputs * size_of(policy.compute)
                              : layer.role == model::LinearRole::kPatches ? activations.peak - activations.in_embedding
                                                                          : 0;
      takes(of_layer.working, missing);
    }
    const int64_t heads = Partition(config.model.num_heads, parallel.tp).part(place.tensor_rank).size();
    if (model::num_blocks(config.model, units) > 0) {
      takes(attention_bytes(config.model, samples, heads, policy.compute, compute.threads),
            activations.peak - activations.in_attention);
    }
  }
  const bool scores = place.stage + 1 == parallel.pp && config.is_forecast() && data.has_validation();
  const int64_t scoring = scores ? score_bytes(config.model, replica.micro_batch, policy) : 0;
  const int64_t others = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  const int64_t of_step = of_class(bytes, MemoryClass::kActivations) + of_class(bytes, MemoryClass::kPackedWeights);
  // From the start of training on: replicas write a part each, whoever owns it.
  const bool copies = compute.copies_state && compute.device == c10::DeviceType::CPU;
  const int64_t copy =
      copies ? saved_elements(config, units, place) / parallel.dp * (states + 1) * size_of(policy.master) : 0;
  of_class(bytes, MemoryClass::kWorkspaces) = std::max({drawing, copy + working, copy + scoring});
  const int64_t total = others + std::max({drawing - of_step, copy + on_top, copy + scoring - activations.peak});
  return {bytes, total, of_data.on_host,
          compute.device == c10::DeviceType::CPU ? library_bytes(config, replica, place, compute, total)
                                                 : LibraryBytes{.nccl = nccl_bytes(parallel, place)},
          shared_bytes(config, replica, place, flat, compute)};
}

std::string small_data(const StepConfig& config, int64_t samples) {
  return samples == 0 || samples >= config.global_batch_size
             ? ""
             : str("--global-batch-size ", config.global_batch_size, " is more than the data have: a step has their ",
                   samples, " samples, and what is predicted is for ", config.global_batch_size);
}

int first_alike(const std::vector<Range>& stages, int stage) {
  const bool has_blocks_alone = stage > 0 && stage + 1 < std::ssize(stages);
  const int64_t size = stages[static_cast<size_t>(stage)].size();
  const auto first =
      std::find_if(stages.begin() + 1, stages.end(), [size](const Range& units) { return units.size() == size; });
  return has_blocks_alone ? static_cast<int>(first - stages.begin()) : stage;
}

std::vector<int> telling_stages(const std::vector<Range>& stages) {
  std::vector<int> telling(stages.size());
  std::iota(telling.begin(), telling.end(), 0);
  std::erase_if(telling, [&](int stage) { return first_alike(stages, stage) != stage; });
  return telling;
}

std::vector<FullestRank> plan_fullest_ranks(const StepConfig& config, const DataConfig& data,
                                            const ComputeTraits& compute) {
  const bool are_alike = config.global_batch_size % config.parallel.dp == 0;
  std::vector<FullestRank> of_stages;
  for (const int replica : are_alike ? std::vector<int>{0} : std::vector<int>{0, config.parallel.dp - 1}) {
    const ReplicaPlan plan = plan_replica(config, replica);
    const std::vector<int> stages = telling_stages(plan.stages);
    of_stages.resize(stages.size());
    for (size_t i = 0; i < stages.size(); ++i) {
      std::vector<int> tensor_ranks = {config.parallel.tp - 1};  // the last of a partition's parts is the largest
      if (compute.saves && stages[i] == 0 && config.parallel.tp > 1) {
        tensor_ranks.push_back(0);
      }
      for (const int tensor_rank : tensor_ranks) {
        const ModelPlace place{stages[i], tensor_rank};
        const MemoryPlan memory = plan_memory(config, data, plan, place, compute);
        if (memory.taken() > of_stages[i].memory.taken()) {
          of_stages[i] = {replica, place, memory};
        }
      }
    }
  }
  return of_stages;
}

FullestRank plan_fullest_rank(const StepConfig& config, const DataConfig& data, const ComputeTraits& compute) {
  const std::vector<FullestRank> of_stages = plan_fullest_ranks(config, data, compute);
  return *std::max_element(of_stages.begin(), of_stages.end(), [](const FullestRank& a, const FullestRank& b) {
    return a.memory.taken() < b.memory.taken();
  });
}

}  // namespace vit_hybrid::train
