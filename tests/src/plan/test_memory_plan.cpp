// The planner's memory and traffic against closed forms of the ZeRO paper and of sums over nodes.
#include <doctest/doctest.h>

#include <numeric>

#include "model/vit_parameters.h"
#include "src/plan/memory_plan.h"
#include "src/plan/step_work.h"
#include "tests/support/contains.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;
using doctest::Approx;

namespace {

RunConfig config_of(int dp, int tp, int pp) {
  RunConfig config;
  config.model.embed_dim = 256;
  config.model.num_heads = 4;
  config.model.mlp_hidden = 1024;
  config.model.depth = 6;
  config.parallel.dp = dp;
  config.parallel.tp = tp;
  config.parallel.pp = pp;
  config.parallel.micro_batch_size = 2;
  config.global_batch_size = int64_t{4} * dp;
  return config;
}

int64_t of_class(const ClassBytes& bytes, MemoryClass memory_class) {
  return bytes[static_cast<size_t>(memory_class)];
}

// Bytes a parameter of weights, gradients and optimizer on one rank.
double state_bytes(const RunConfig& config) {
  const ClassBytes bytes = plan_memory(config, config.data, plan_replica(config, 0), {}, {}).peak;
  return static_cast<double>(of_class(bytes, MemoryClass::kParameters) + of_class(bytes, MemoryClass::kGradients) +
                             of_class(bytes, MemoryClass::kOptimizer)) /
         static_cast<double>(model::num_parameters(config.model));
}

}  // namespace

TEST_CASE("memory plan: bytes a parameter are those of ZeRO's equations") {
  constexpr double kPadding = 0.01;
  for (const int dp : {1, 2, 8}) {
    const double d = dp;
    RunConfig config = config_of(dp, 1, 1);
    CAPTURE(dp);
    CHECK(state_bytes(config) == Approx(8.0 + 8.0 / d).epsilon(kPadding));
    config.precision.kind = Precision::kBf16;
    CHECK(state_bytes(config) == Approx(6.0 + 12.0 / d).epsilon(kPadding));
    config.precision.gradient = GradientType::kHalf;
    CHECK(state_bytes(config) == Approx(4.0 + 12.0 / d).epsilon(kPadding));
    config.parallel.zero = 0;
    CHECK(state_bytes(config) == Approx(16.0).epsilon(kPadding));
  }
}

TEST_CASE("memory plan: fields of files are there once more where a GPU normalizes them") {
  RunConfig config = config_of(1, 1, 1);
  config.data.kind = DataKind::kHdf5;
  config.precision.kind = Precision::kBf16;
  const auto plan = [&](c10::DeviceType device) {
    ComputeTraits compute;
    compute.device = device;
    compute.read_ahead = 3;
    return plan_memory(config, config.data, plan_replica(config, 0), {}, compute);
  };
  const auto in_fields = [&](int64_t bytes) {
    const model::VitOptions& model = config.model;
    return static_cast<double>(bytes) /
           static_cast<double>(2 * model.in_channels * model.image_height * model.image_width * int64_t{sizeof(float)});
  };
  const auto fields = [&](c10::DeviceType device) {
    return in_fields(of_class(plan(device).peak, MemoryClass::kData));
  };
  // Three batches of inputs and targets ahead and one in work, of which the inputs are also there in bf16.
  CHECK(fields(c10::DeviceType::CPU) == Approx(3 * 2 + 2 + 0.5));
  // And normalized targets, and the next batch; what is ahead of it is the host's.
  CHECK(fields(c10::DeviceType::CUDA) == Approx(3 * 2 + 2 + 0.5 + 1.0 + 2 + (0.5 + 1.0)));  // the last of a CUDA graph
  config.cuda_graph = CudaGraph::kOff;
  CHECK(fields(c10::DeviceType::CUDA) == Approx(3 * 2 + 2 + 0.5 + 1.0 + 2));
  CHECK(in_fields(plan(c10::DeviceType::CUDA).on_host) == Approx(3 * 2));
  CHECK(plan(c10::DeviceType::CPU).on_host == 0);
  // What training has read stays while as much is read, and worked on, for validation.
  config.data.valid_data = "valid";
  CHECK(fields(c10::DeviceType::CPU) == Approx(2.0 * (3 * 2 + 2) + 0.5));
}

TEST_CASE("memory plan: the state is split over the ranks of --zero-shard-size alone") {
  for (const auto& [shard_size, parts] : {std::pair(0, 8.0), {1, 1.0}, {2, 2.0}, {4, 4.0}, {8, 8.0}}) {
    const int shard = shard_size;  // which CAPTURE can hold
    RunConfig config = config_of(8, 1, 1);
    config.parallel.zero_shard_size = shard;
    CAPTURE(shard);
    CHECK(state_bytes(config) == Approx(8.0 + 8.0 / parts).epsilon(0.01));
    config.precision.kind = Precision::kBf16;
    CHECK(state_bytes(config) == Approx(6.0 + 12.0 / parts).epsilon(0.01));
  }
}

TEST_CASE("memory plan: the last backward may be of the largest micro-batch, with fewer in flight") {
  RunConfig config = config_of(1, 1, 2);
  config.parallel.schedule = "gpipe";
  config.parallel.micro_batch_size = 2;
  config.global_batch_size = 3;  // micro-batches of one and two samples
  config.recompute = model::Recompute::kFull;
  const ReplicaPlan replica = plan_replica(config, 0);
  REQUIRE(replica.micro_batches == 2);
  const auto bytes = [&](const model::HeldSamples& held) {
    return model::activation_bytes(config.model, replica.stages[0], {}, config.recompute, at::kFloat, held).peak;
  };
  REQUIRE(bytes({2, 2, 0}) > bytes({3, 1, 2}));
  const MemoryPlan memory = plan_memory(config, config.data, replica, {}, {});
  CHECK(memory.peak[static_cast<size_t>(MemoryClass::kActivations)] == bytes({2, 2, 0}));
}

TEST_CASE("memory plan: a batch of more samples than the data have is told") {
  RunConfig config = config_of(2, 1, 1);
  config.global_batch_size = 256;
  config.data.kind = DataKind::kSynthetic;
  config.data.generated_samples = 300;
  CHECK(config.data.known_samples() == 300);
  config.data.limit_nsamples = 16;
  CHECK(config.data.known_samples() == 16);
  CHECK(small_data(config, 256).empty());
  CHECK(small_data(config, 0).empty());
  CHECK(testing::contains(small_data(config, 16),
                          "--global-batch-size 256 is more than the data have: a step has their 16 samples"));
  config.data.kind = DataKind::kHdf5;
  CHECK(config.data.known_samples() == 16);
  config.data.limit_nsamples = 0;
  CHECK(config.data.known_samples() == 0);
}

TEST_CASE("memory plan: the process on the host grows by libraries too, and by what freed blocks keep") {
  RunConfig config = config_of(1, 1, 1);
  config.model.image_height = 64;
  config.model.image_width = 128;
  const auto plan = [&](int stage = 0, int threads = 1, c10::DeviceType device = c10::DeviceType::CPU) {
    ComputeTraits compute;
    compute.device = device;
    compute.threads = threads;
    const MemoryPlan memory = plan_memory(config, config.data, plan_replica(config, 0), {stage, 0}, compute);
    CHECK(memory.taken() == memory.total - memory.on_host + memory.libraries.total());
    return memory;
  };
  const auto mebibytes = [](const MemoryPlan& memory) {
    const int64_t freed = std::min<int64_t>(memory.total / 12, 8 << 20) + std::min<int64_t>(memory.total / 64, 8 << 20);
    return static_cast<double>(memory.libraries.total() - freed) / (1 << 20);
  };
  CHECK(mebibytes(plan()) == 11);  // every step and the loss
  CHECK(mebibytes(plan(0, 3)) == 17);
  CHECK(plan(0, 3, c10::DeviceType::CUDA).libraries.total() == 0);  // it is alone
  config.global_batch_size = 3;                                     // micro-batches of one and two samples
  const MemoryPlan uneven = plan();
  CHECK(mebibytes(uneven) == 11 + static_cast<double>(std::min<int64_t>(uneven.total / 24, 6 << 20)) / (1 << 20));
  config.global_batch_size = 4;
  config.precision.kind = Precision::kFp64;
  CHECK(mebibytes(plan()) == 15 + 2);  // of a weight of 1024 x 256
  CHECK(plan().libraries.mkl == 6 << 20);
  config.model.mlp_hidden = 8192;
  CHECK(mebibytes(plan()) == 15 + 8);
  config.model.mlp_hidden = 1024;
  config.precision.kind = Precision::kFp32;
  config.parallel.dp = 2;
  CHECK(mebibytes(plan()) == 12);
  config.parallel.tp = 4;
  CHECK(mebibytes(plan()) == 15);
  config.parallel.tp = 1;
  config.parallel.dp = 1;
  config.parallel.pp = 3;
  CHECK(mebibytes(plan(0)) == 8);
  CHECK(mebibytes(plan(1)) == 8);
  CHECK(mebibytes(plan(2)) == 11);
  config.model.task = model::Task::kClassify;
  config.model.num_classes = 10;
  CHECK(mebibytes(plan(0)) == 12);
  CHECK(mebibytes(plan(1)) == 8);
  CHECK(mebibytes(plan(2)) == 15);
  config.parallel.pp = 1;
  config.model.embed_dim *= 16;
  const MemoryPlan large = plan();
  REQUIRE(large.total > 512 << 20);
  CHECK(large.libraries.total() == (15 + 8 + 8) << 20);
}

TEST_CASE("memory plan: what fc2 packs of its input is gone when that one's gradient is made") {
  RunConfig config = config_of(1, 1, 1);
  config.parallel.micro_batch_size = 64;
  config.global_batch_size = 64;
  config.model.image_height = 64;
  config.model.image_width = 128;
  config.model.in_channels = 3;
  config.model.task = model::Task::kClassify;  // without the scores of a forecast
  ComputeTraits compute;
  compute.fp32 = kernels::ProductKernel::kBlocked;
  const MemoryPlan memory = plan_memory(config, config.data, plan_replica(config, 0), {}, compute);
  const int64_t rows = 64 * config.model.num_tokens();
  const int64_t of_fc2 = rows * config.model.mlp_hidden * 4, of_fc1 = rows * config.model.embed_dim * 4;
  REQUIRE(of_class(memory.peak, MemoryClass::kWorkspaces) > of_fc2);  // packed rows and what a thread takes
  const int64_t apart = std::accumulate(memory.peak.begin(), memory.peak.end(), int64_t{0}) - memory.total;
  CHECK(apart > of_fc2 - of_fc1 - (1 << 20));
  CHECK(apart <= of_fc2);
}

TEST_CASE("memory plan: what the embedding packs of fields is there when blocks' activations are gone") {
  RunConfig config = config_of(1, 1, 1);
  config.model.image_height = 64;
  config.model.image_width = 128;
  config.model.in_channels = 40;  // patches of 2560 numbers
  config.model.task = model::Task::kClassify;
  ComputeTraits compute;
  compute.fp32 = kernels::ProductKernel::kBlocked;
  const MemoryPlan memory = plan_memory(config, config.data, plan_replica(config, 0), {}, compute);
  const int64_t apart = std::accumulate(memory.peak.begin(), memory.peak.end(), int64_t{0}) - memory.total;
  const int64_t rows = 2 * config.model.num_patches();
  CHECK(apart > rows * (2560 - config.model.mlp_hidden) * 4);
}

TEST_CASE("memory plan: the process of rank 0 grows by what HDF5 keeps of checkpoints, too") {
  RunConfig config = config_of(2, 2, 2);
  const auto more = [&](int replica, ModelPlace place) {
    ComputeTraits compute;
    const ReplicaPlan plan = plan_replica(config, replica);
    const int64_t without = plan_memory(config, config.data, plan, place, compute).libraries.total();
    compute.saves = true;
    return (plan_memory(config, config.data, plan, place, compute).libraries.total() - without) >> 20;
  };
  CHECK(more(0, {}) == 3 + 3);  // six blocks' weights with Adam's two numbers of state
  CHECK(more(0, {1, 0}) == 0);
  CHECK(more(0, {0, 1}) == 0);
  CHECK(more(1, {}) == 0);
  config.model.depth = 1000;
  CHECK(more(0, {}) == 32);
  ComputeTraits compute;
  compute.saves = true;
  CHECK(plan_fullest_rank(config, config.data, compute).place.tensor_rank == 0);
}

TEST_CASE(
    "memory plan: the copy that checkpoints are written from is a part of each replica's, whoever owns the state") {
  const auto workspaces = [](int dp, int zero, bool copies) {
    RunConfig config = config_of(dp, 1, 1);
    config.parallel.zero = zero;
    ComputeTraits compute;
    compute.copies_state = copies;
    return plan_memory(config, config.data, plan_replica(config, 0), {}, compute);
  };
  for (const int zero : {0, 1}) {
    const MemoryPlan without = workspaces(4, zero, false), with = workspaces(4, zero, true);
    const auto of = [](const MemoryPlan& plan) { return plan.peak[static_cast<size_t>(MemoryClass::kWorkspaces)]; };
    // Adam: weights and two numbers of state.
    const double copy =
        3.0 * sizeof(float) * static_cast<double>(model::num_parameters(config_of(4, 1, 1).model)) / 4.0;
    CHECK(static_cast<double>(with.total - without.total) == Approx(copy).epsilon(0.01));
    CHECK(of(with) > of(without));
  }
}

TEST_CASE("memory plan: what tensor ranks hold alike is copied by the first of them") {
  RunConfig config = config_of(1, 2, 1);
  const auto copied = [&](int tensor_rank, bool copies) {
    ComputeTraits compute;
    compute.copies_state = copies;
    return plan_memory(config, config.data, plan_replica(config, 0), {0, tensor_rank}, compute).total;
  };
  const int64_t of_first = copied(0, true) - copied(0, false), of_second = copied(1, true) - copied(1, false);
  // Adam: weights and two numbers of state, each of them once.
  CHECK(static_cast<double>(of_first + of_second) ==
        Approx(3.0 * sizeof(float) * static_cast<double>(model::num_parameters(config.model))).epsilon(1e-6));
  CHECK(of_first > of_second);
}

TEST_CASE("memory plan: the fullest rank, and that of each stage, grow no less than any other") {
  RunConfig config = config_of(3, 3, 2);
  config.global_batch_size = 7;  // 2 + 2 + 3 samples
  config.parallel.micro_batch_size = 2;
  const ComputeTraits compute;
  const auto of_stages = plan_fullest_ranks(config, config.data, compute);
  REQUIRE(of_stages.size() == 2);
  int64_t largest = 0;
  for (int stage = 0; stage < 2; ++stage) {
    int64_t of_stage = 0;
    for (int replica = 0; replica < 3; ++replica) {
      for (int tensor_rank = 0; tensor_rank < 3; ++tensor_rank) {
        const ReplicaPlan plan = plan_replica(config, replica);
        of_stage = std::max(of_stage, plan_memory(config, config.data, plan, {stage, tensor_rank}, compute).taken());
      }
    }
    CHECK(of_stages[static_cast<size_t>(stage)].memory.taken() == of_stage);
    largest = std::max(largest, of_stage);
  }
  CHECK(plan_fullest_rank(config, config.data, compute).memory.taken() == largest);
}

TEST_CASE("memory plan: of a small pipeline the last stage grows most, though the first holds more") {
  RunConfig config = config_of(1, 1, 2);
  config.model.task = model::Task::kClassify;  // images on the first stage, labels on the last
  config.model.num_classes = 10;
  config.model.image_height = config.model.image_width = 32;
  config.model.in_channels = 3;
  config.model.depth = 2;
  config.model.embed_dim = 32;
  config.model.mlp_hidden = 32;
  const ComputeTraits compute;
  const auto of_stages = plan_fullest_ranks(config, config.data, compute);
  REQUIRE(of_stages.size() == 2);
  REQUIRE(of_stages[0].memory.total > of_stages[1].memory.total);
  CHECK(plan_fullest_rank(config, config.data, compute).place.stage == 1);
  const auto on_gpu = [&] {
    ComputeTraits gpu;
    gpu.device = c10::DeviceType::CUDA;
    return plan_fullest_ranks(config, config.data, gpu);
  }();
  CHECK(on_gpu[0].memory.taken() ==
        on_gpu[0].memory.total - on_gpu[0].memory.on_host + on_gpu[0].memory.libraries.nccl);
}

// On one node of d replicas each reads its d-th of the gradients of d - 1 others, and of their parameters what they
// own.
TEST_CASE("memory plan: what a rank reads of the others of its node is resident in its process, too") {
  const auto shared = [](const RunConfig& config, const std::vector<int>& nodes) {
    ComputeTraits compute;
    compute.nodes = nodes;
    const MemoryPlan memory = plan_memory(config, config.data, plan_replica(config, 0), {}, compute);
    CHECK(memory.process() == memory.taken() + memory.shared);
    const auto part = [&](MemoryClass of) {
      return static_cast<double>(memory.shared) / static_cast<double>(of_class(memory.peak, of));
    };
    CHECK(part(MemoryClass::kGradients) == part(MemoryClass::kParameters));  // as many bytes in fp32
    return part(MemoryClass::kGradients);
  };
  RunConfig config = config_of(4, 1, 1);
  CHECK(shared(config, {}) == Approx(0.75 + 0.75));
  CHECK(shared(config, {2, 2}) == Approx(0.5));  // gathers go through the leader's slot
  config.parallel.zero_shard_size = 2;
  CHECK(shared(config, {2, 2}) == Approx(0.5 + 0.5));
  CHECK(shared(config, {4}) == Approx(0.5 + 0.5 + 0.5 / 2.0));
  config.parallel.zero_shard_size = 0;
  config.parallel.zero = 0;
  CHECK(shared(config, {}) == Approx(0.75));
  CHECK(shared(config_of(1, 4, 1), {}) == 0.0);
}

TEST_CASE("memory plan: NCCL's buffers are 12 MiB for each connection of a channel") {
  const auto connections = [](RunConfig config, int stage) {
    ComputeTraits gpu;
    gpu.device = c10::DeviceType::CUDA;
    const LibraryBytes libraries = plan_memory(config, config.data, plan_replica(config, 0), {stage, 0}, gpu).libraries;
    CHECK(libraries.total() == libraries.nccl);
    return static_cast<double>(libraries.nccl) / (12 << 20);
  };
  constexpr int kRing = 1, kTree = 2, kChannels = 16, kOfWorld = 2;
  CHECK(connections(config_of(2, 1, 1), 0) == (kOfWorld + kChannels) * (kRing + 1));  // one parent, or one child
  CHECK(connections(config_of(8, 1, 1), 0) == (kOfWorld + kChannels) * (kRing + kTree));
  CHECK(connections(config_of(1, 4, 1), 0) == (kOfWorld + kChannels) * (kRing + kTree));
  CHECK(connections(config_of(1, 1, 3), 0) == kOfWorld * (kRing + kTree) + kChannels);
  CHECK(connections(config_of(1, 1, 3), 1) == kOfWorld * (kRing + kTree) + 2 * kChannels);
  RunConfig limited = config_of(8, 1, 1);
  limited.parallel.dp_max_ctas = 3;
  CHECK(connections(limited, 0) == (kOfWorld + 3) * (kRing + kTree));
  limited.parallel.zero_shard_size = 2;
  CHECK(connections(limited, 0) == (kOfWorld + 3) * (kRing + kTree) + 3 * (kRing + 1));
}

TEST_CASE("memory plan: no more of a validation is read ahead than there is") {
  RunConfig config = config_of(1, 1, 1);
  config.data.kind = DataKind::kSynthetic;
  config.data.valid_batch_size = 4;
  ComputeTraits compute;
  const auto bytes_of_data = [&](int64_t valid_samples, int64_t read_ahead) {
    config.data.generated_valid_samples = valid_samples;
    compute.read_ahead = read_ahead;
    return of_class(plan_memory(config, config.data, plan_replica(config, 0), {}, compute).peak, MemoryClass::kData);
  };
  const int64_t micro_batch = bytes_of_data(64, 6) - bytes_of_data(64, 5) - (bytes_of_data(0, 6) - bytes_of_data(0, 5));
  REQUIRE(micro_batch > 0);
  const auto more = [&](int64_t valid_samples, int64_t fewer, int64_t read_ahead) {
    return static_cast<double>(bytes_of_data(valid_samples, read_ahead) - bytes_of_data(fewer, read_ahead)) /
           static_cast<double>(micro_batch);
  };
  CHECK(more(64, 8, 8) == Approx(5.0).epsilon(1e-4));  // 9 micro-batches, or all 4
  CHECK(more(64, 8, 3) == Approx(0.0).epsilon(1e-4));
  CHECK(more(8, 6, 8) == Approx(1.0).epsilon(1e-4));
}

TEST_CASE("memory plan: a last batch of less than half takes memory of its own") {
  RunConfig config = config_of(1, 1, 1);
  config.data.kind = DataKind::kSynthetic;
  config.data.valid_batch_size = 8;
  config.global_batch_size = 8;
  config.parallel.micro_batch_size = 8;
  const auto samples_held = [&](int64_t samples, int64_t valid_samples, bool drops) {
    config.data.generated_samples = samples;
    config.data.generated_valid_samples = valid_samples;
    config.data.drop_last = drops;
    const ClassBytes bytes = plan_memory(config, config.data, plan_replica(config, 0), {}, {}).peak;
    const model::VitOptions& model = config.model;
    return static_cast<double>(of_class(bytes, MemoryClass::kData)) /
           static_cast<double>(2 * model.in_channels * model.image_height * model.image_width * int64_t{sizeof(float)});
  };
  const double whole = samples_held(16, 16, false);
  // Of validation one more micro-batch is read ahead than of 16 samples.
  CHECK(samples_held(16, 19, false) - samples_held(16, 24, false) == Approx(3.0));
  CHECK(samples_held(16, 20, false) - samples_held(16, 24, false) == Approx(0.0));  // in that of the others
  CHECK(samples_held(17, 16, false) - whole == Approx(1.0));
  CHECK(samples_held(17, 16, true) - whole == Approx(0.0));
  config.data.kind = DataKind::kHdf5;  // of which only --limit-nsamples is known here
  config.data.valid_data = "valid";
  CHECK(samples_held(16, 16, false) - samples_held(16, 16, true) == Approx(3.0));
}

TEST_CASE("plan of traffic: what crosses nodes is what their sums need") {
  const RunConfig config = config_of(8, 1, 1);
  const ReplicaPlan replica = plan_replica(config, 0);
  const auto parameters = static_cast<double>(4 * model::num_parameters(config.model));
  // Two nodes: half of the gradients there, half of the parameters back.
  CHECK(plan_least_bytes(config, replica, 4, c10::DeviceType::CPU).between[0] == Approx(parameters).epsilon(0.01));
  CHECK(plan_least_bytes(config, replica, 1, c10::DeviceType::CPU).between[0] ==
        Approx(parameters * 2.0 * 7.0 / 8.0).epsilon(0.01));
  CHECK(plan_least_bytes(config, replica, 8, c10::DeviceType::CPU).between[0] == 0.0);
  // On a node each rank sends what its halves lack of all others: 7/8 of the gradients, 7/8 of the parameters.
  CHECK(plan_least_bytes(config, replica, 8, c10::DeviceType::CPU).within[0] ==
        Approx(parameters * 2.0 * 7.0).epsilon(0.01));
  CHECK(plan_least_bytes(config, replica, 4, c10::DeviceType::CPU).within[0] ==
        Approx(parameters * 2.0 * 3.0).epsilon(0.01));
  CHECK(plan_least_bytes(config, replica, 1, c10::DeviceType::CPU).within[0] == 0.0);
  RunConfig replicated = config;
  replicated.parallel.zero = 0;
  CHECK(plan_least_bytes(replicated, plan_replica(replicated, 0), 4, c10::DeviceType::CPU).between[0] ==
        Approx(parameters).epsilon(0.01));
}

TEST_CASE("plan of traffic: where parts of the replicas split the state, only sums of a part's gradients leave it") {
  RunConfig config = config_of(8, 1, 1);
  config.parallel.zero_shard_size = 4;
  const ReplicaPlan replica = plan_replica(config, 0);
  const auto traffic = plan_traffic(config, replica, {0, 0}, c10::DeviceType::CPU);
  const auto parameters = static_cast<double>(4 * model::num_parameters(config.model));
  const auto of = [](const auto& by_group, mesh::Group group) { return by_group[static_cast<size_t>(group)]; };
  CHECK(of(traffic, mesh::Group::kData).bytes == 0);
  CHECK(static_cast<double>(of(traffic, mesh::Group::kShard).bytes) == Approx(2.0 * parameters).epsilon(0.01));
  CHECK(static_cast<double>(of(traffic, mesh::Group::kReplica).bytes) == Approx(parameters / 4.0).epsilon(0.01));
  CHECK(of(traffic, mesh::Group::kShard).operations == 2 * of(traffic, mesh::Group::kReplica).operations);
  // Two nodes of one part each: four pairs of ranks sum a quarter each.
  const auto between = plan_least_bytes(config, replica, 4, c10::DeviceType::CPU).between;
  CHECK(of(between, mesh::Group::kShard) == 0.0);
  CHECK(of(between, mesh::Group::kReplica) == Approx(parameters).epsilon(0.01));
  // Nodes of two ranks: a part spans two, and both move.
  const auto narrow = plan_least_bytes(config, replica, 2, c10::DeviceType::CPU).between;
  CHECK(of(narrow, mesh::Group::kShard) == Approx(parameters).epsilon(0.01));
  CHECK(of(narrow, mesh::Group::kReplica) == Approx(2.0 * parameters / 4.0).epsilon(0.01));
  const auto on_node = plan_least_bytes(config, replica, 4, c10::DeviceType::CPU).within;
  CHECK(of(on_node, mesh::Group::kShard) == Approx(2.0 * parameters * 3.0).epsilon(0.01));
  CHECK(of(on_node, mesh::Group::kReplica) == 0.0);
}

TEST_CASE("plan of traffic: a tensor group on one node leaves nothing there, stages send their activations") {
  const RunConfig config = config_of(1, 2, 2);
  const ReplicaPlan replica = plan_replica(config, 0);
  const double activation = 4.0 * 4.0 * static_cast<double>(config.model.num_tokens() * config.model.embed_dim);
  const auto traffic = plan_traffic(config, replica, {0, 0}, c10::DeviceType::CPU);
  CHECK(static_cast<double>(traffic[1].bytes) == 4.0 * static_cast<double>(replica.stages[0].size() - 1) * activation);
  CHECK(static_cast<double>(traffic[2].bytes) == activation);
  const auto [within, between] = plan_least_bytes(config, replica, 2, c10::DeviceType::CPU);
  CHECK(within[1] == 2.0 * static_cast<double>(traffic[1].bytes));
  CHECK(between[1] == 0.0);
  CHECK(within[2] == 0.0);
  CHECK(between[2] == 2.0 * activation);
  CHECK(plan_least_bytes(config, replica, 4, c10::DeviceType::CPU).within[2] == 4.0 * activation);
}
