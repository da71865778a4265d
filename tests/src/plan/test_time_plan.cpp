// The planner's times on machines whose rates are constants: closed forms of FLOP, bubbles and messages.
#include <doctest/doctest.h>

#include <cmath>

#include "model/vit_costs.h"
#include "model/vit_parameters.h"
#include "src/base/error.h"
#include "src/plan/step_work.h"
#include "src/plan/time_plan.h"
#include "tests/support/contains.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;
using namespace vit_hybrid::testing;
using doctest::Approx;

namespace {

constexpr double kFlops = 1e9;       // of products and attention
constexpr double kInstantly = 1e30;  // all else

RateTable constant(const WorkKind& kind, double rate) {
  RateTable table{{}, {rate}, ""};
  for (const char* const axis : kind.axes) {
    table.axes.push_back({axis, {1.0}});
  }
  return table;
}

// Ranks of one node compute products and attention in time, and nothing else takes any.
MachineFile machine_of(int ranks, double bus_bytes = kInstantly) {
  MachineFile machine{"constant", "cpu", ranks, {}, {{ranks, 1, {}, {}, 0.0}}, {}};
  Population& population = machine.populations.front();
  for (const WorkKind& kind : kernel_kinds()) {
    population.types["fp32"].emplace(kind.name,
                                     constant(kind, std::string(kind.unit) == "FLOP/s" ? kFlops : kInstantly));
  }
  for (const WorkKind& kind : message_kinds()) {
    population.messages.emplace(kind.name, constant(kind, bus_bytes));
  }
  return machine;
}

RunConfig config_of_steps(int dp, int tp, int pp, int micro_batches) {
  RunConfig config;
  config.model.embed_dim = 256;
  config.model.num_heads = 4;
  config.model.mlp_hidden = 1024;
  config.model.depth = 8;
  config.parallel.dp = dp;
  config.parallel.tp = tp;
  config.parallel.pp = pp;
  config.parallel.micro_batch_size = 2;
  config.global_batch_size = int64_t{2} * dp * micro_batches;
  return config;
}

double step_flops(const RunConfig& config) {
  return model::train_flops_per_sample(config.model) * static_cast<double>(config.global_batch_size);
}

}  // namespace

TEST_CASE("time plan: the kernels of a step have the FLOP of the model, and its recomputation's") {
  RunConfig config = config_of_steps(1, 1, 1, 2);
  TimePlan time = plan_time(config, config.data, machine_of(1), 1, 1);
  CHECK(time.step == Approx(step_flops(config) / kFlops));
  CHECK(time.forward + time.backward == Approx(time.step));
  const double blocks = 8.0, samples = 4.0;
  const double block = model::unit_costs(config.model)[1] * samples * blocks;
  config.recompute = model::Recompute::kFull;
  CHECK(plan_time(config, config.data, machine_of(1), 1, 1).step == Approx((step_flops(config) + block) / kFlops));
  config.recompute = model::Recompute::kSelective;  // qkv and fc1 again
  const double tokens = static_cast<double>(config.model.num_tokens()) * samples * blocks;
  CHECK(plan_time(config, config.data, machine_of(1), 1, 1).step ==
        Approx((step_flops(config) + 2.0 * tokens * 256.0 * (3.0 * 256.0 + 1024.0)) / kFlops));
}

TEST_CASE("time plan: ranks share the work of a step, but for what a partition leaves uneven") {
  for (const int ranks : {2, 4}) {
    CAPTURE(ranks);
    const RunConfig data = config_of_steps(ranks, 1, 1, 2);
    CHECK(plan_time(data, data.data, machine_of(ranks), ranks, 1).step == Approx(step_flops(data) / kFlops / ranks));
    const RunConfig tensor = config_of_steps(1, ranks, 1, 2);
    const auto costs = model::unit_costs(tensor.model);
    // Each tensor rank has the embedding and the head whole.
    const double whole = 4.0 * (2.0 * costs.front() + 3.0 * costs.back());
    CHECK(plan_time(tensor, tensor.data, machine_of(ranks), ranks, 1).step ==
          Approx((whole + (step_flops(tensor) - whole) / ranks) / kFlops));
  }
}

TEST_CASE("time plan: a pipeline of equal stages waits (p - 1) of (m + p - 1) parts of its time") {
  // Y. Huang et al., GPipe, section 2.3. Embedding and head of next to no cost.
  RunConfig config = config_of_steps(1, 1, 4, 6);
  config.model.in_channels = config.model.out_channels = 1;
  config.model.patch_height = config.model.patch_width = 1;
  config.model.image_height = config.model.image_width = 16;
  const double p = 4.0, m = 6.0;
  for (const char* const schedule : {"1f1b", "gpipe"}) {
    config.parallel.schedule = schedule;
    const TimePlan time = plan_time(config, config.data, machine_of(4), 4, 1);
    CHECK(time.waiting / time.step == Approx((p - 1.0) / (m + p - 1.0)).epsilon(0.02));
  }
}

TEST_CASE("time plan: messages take their bytes over the rate of the bus, and between nodes over that of the node") {
  constexpr double kBus = 1e6;
  const auto no_messages = [](const RunConfig& config, int ranks) {
    return plan_time(config, config.data, machine_of(ranks), ranks, 1).step;
  };
  RunConfig config = config_of_steps(4, 1, 1, 2);
  const double bytes = 4.0 * static_cast<double>(model::num_parameters(config.model));
  for (const int zero : {0, 1}) {  // a sum is its two halves
    config.parallel.zero = zero;
    const double step = plan_time(config, config.data, machine_of(4, kBus), 4, 1).step;
    CHECK(step - no_messages(config, 4) == Approx(2.0 * 3.0 / 4.0 * bytes / kBus).epsilon(0.01));
  }
  const RunConfig tensor = config_of_steps(1, 2, 1, 2);
  const double activations = 4.0 * 4.0 * static_cast<double>(tensor.model.num_tokens()) * 256.0;
  const TimePlan time = plan_time(tensor, tensor.data, machine_of(2, kBus), 2, 1);
  CHECK(time.step - no_messages(tensor, 2) == Approx(8.0 * 4.0 * activations / kBus).epsilon(0.01));
  CHECK(time.messages == Approx(8.0 * 4.0 * activations / kBus).epsilon(0.01));
  // Four nodes of one rank, and two of two, of which each sends the sum of its ranks.
  MachineFile nodes = machine_of(1);
  nodes.between_nodes.bytes_per_s = kBus;
  CHECK(plan_time(config, config.data, nodes, 1, 1).step - no_messages(config, 4) ==
        Approx(2.0 * 3.0 / 4.0 * bytes / kBus).epsilon(0.01));
  nodes = machine_of(2);
  nodes.between_nodes.bytes_per_s = kBus;
  CHECK(plan_time(config, config.data, nodes, 2, 1).step - no_messages(config, 4) ==
        Approx(2.0 * 1.0 / 2.0 * bytes / kBus).epsilon(0.01));
}

TEST_CASE(
    "time plan: between nodes messages hide behind computing, but for the last bucket's and what they take of ranks") {
  constexpr double kBus = 1e8, kMessage = 1e-4;
  const RunConfig config = config_of_steps(4, 1, 1, 1);
  const double bytes = 4.0 * static_cast<double>(model::num_parameters(config.model));
  const auto layout = plan_flat_layout(config, plan_replica(config, 3), {0, 0}, c10::DeviceType::CPU);
  const auto buckets = static_cast<double>(layout.buckets.size());
  REQUIRE(buckets > 4.0);
  MachineFile nodes = machine_of(1);
  const double alone = plan_time(config, config.data, nodes, 1, 1).step;
  nodes.between_nodes.bytes_per_s = kBus;
  const double on_way = 2.0 * 3.0 / 4.0 * bytes / kBus;  // gradients, and parameters
  REQUIRE(on_way < 0.2 * alone);
  CHECK(plan_time(config, config.data, nodes, 1, 1).step - alone == Approx(on_way).epsilon(0.01));
  nodes.between_nodes.byte_s = 0.0;
  CHECK(plan_time(config, config.data, nodes, 1, 1).step - alone == Approx(on_way / buckets).epsilon(0.01));
  // Each round of 2 MiB has three messages that go and three that come, and they take the rank's time.
  nodes.between_nodes.message_s = kMessage;
  const double rounds = 2.0 * buckets * std::ceil(bytes / buckets / (2 << 20));
  CHECK(plan_time(config, config.data, nodes, 1, 1).step - alone ==
        Approx(on_way / buckets + rounds * 6.0 * kMessage).epsilon(0.05));
  // So does what each byte takes of it.
  nodes.between_nodes = {kBus, 0.0, 0.0, 0.1 / kBus, std::nullopt};
  CHECK(plan_time(config, config.data, nodes, 1, 1).step - alone ==
        Approx(0.9 * on_way / buckets + 0.1 * on_way).epsilon(0.05));
  // Where next to nothing comes between two looks, nothing hides; where little does, a part.
  nodes.between_nodes = {kBus, 0.0, 0.0, 0.0, 1.0};
  CHECK(plan_time(config, config.data, nodes, 1, 1).step - alone == Approx(on_way).epsilon(0.01));
  nodes.between_nodes.look_bytes = 0.1 * kBus * on_way / 40.0;  // some 40 looks in each pass
  const double partly = plan_time(config, config.data, nodes, 1, 1).step - alone;
  CHECK(partly < 0.95 * on_way);
  CHECK(partly > 1.05 * on_way / buckets);
  nodes.between_nodes.look_bytes = kBus * alone;
  CHECK(plan_time(config, config.data, nodes, 1, 1).step - alone == Approx(on_way / buckets).epsilon(0.01));
  // The thread that moves messages does the same where it has a core, which these nodes of one core have not.
  nodes.between_nodes = {kBus, 0.0, 0.0, std::nullopt, std::nullopt};
  RunConfig with_thread = config;
  with_thread.parallel.communication_thread = true;
  CHECK(plan_time(with_thread, with_thread.data, nodes, 1, 1).step - alone == Approx(on_way).epsilon(0.01));
  nodes.cores = 2;
  CHECK(plan_time(with_thread, with_thread.data, nodes, 1, 1).step - alone == Approx(on_way / buckets).epsilon(0.01));
}

TEST_CASE("time plan: parts of the replicas scatter, sum what they have with each other, and gather among themselves") {
  constexpr double kBus = 1e6, kNetwork = 1e5;
  RunConfig config = config_of_steps(4, 1, 1, 2);
  config.parallel.zero_shard_size = 2;
  const double bytes = 4.0 * static_cast<double>(model::num_parameters(config.model));
  const double alone = plan_time(config, config.data, machine_of(4), 4, 1).step;
  // All on one node: the halves over two ranks, and a sum of half of the bytes over two.
  CHECK(plan_time(config, config.data, machine_of(4, kBus), 4, 1).step - alone ==
        Approx((2.0 * bytes / 2.0 + bytes / 2.0) / kBus).epsilon(0.01));
  // A part on each of two nodes: the two sums of a node share its network.
  MachineFile nodes = machine_of(2, kBus);
  nodes.between_nodes.bytes_per_s = kNetwork;
  CHECK(plan_time(config, config.data, nodes, 2, 1).step - alone ==
        Approx(2.0 * bytes / 2.0 / kBus + 2.0 * bytes / 2.0 / kNetwork).epsilon(0.01));
}

TEST_CASE("time plan: a step waits for what is read more slowly than it goes, or for all that it reads by itself") {
  constexpr double kReading = 1e3;  // of each of two ranks of a node
  RunConfig config = config_of_steps(4, 1, 1, 2);
  config.model.task = model::Task::kForecast;
  config.data.kind = DataKind::kHdf5;
  MachineFile machine = machine_of(2);
  machine.between_nodes.bytes_per_s = kInstantly;
  const double step = plan_time(config, config.data, machine, 2, 1).step;
  machine.populations[0].reading_bytes_per_s = kReading;
  const model::VitOptions& model = config.model;
  const int64_t samples = config.global_batch_size / 2;  // of a node
  const auto pixels = static_cast<double>(samples * model.image_height * model.image_width);
  const double reading = 4.0 * static_cast<double>(model.in_channels + model.out_channels) * pixels / (2.0 * kReading);
  REQUIRE(reading > step);
  const TimePlan time = plan_time(config, config.data, machine, 2, 1);
  CHECK(time.data_wait == Approx(reading - step));
  CHECK(time.step == Approx(reading));
  CHECK(contains(time_text(time), ", waiting for data "));
  config.data.io_threads = 0;
  CHECK(plan_time(config, config.data, machine, 2, 1).step == Approx(reading + step));
  config.data.kind = DataKind::kSynthetic;
  CHECK(plan_time(config, config.data, machine, 2, 1).step == Approx(step));
  config.data.kind = DataKind::kHdf5;
  config.model.task = model::Task::kClassify;  // of bytes
  CHECK(plan_time(config, config.data, machine, 2, 1).data_wait ==
        Approx(static_cast<double>(model.in_channels) * pixels / (2.0 * kReading)));
}

TEST_CASE("time plan: ranks that share cores take turns") {
  const RunConfig config = config_of_steps(8, 1, 1, 1);
  const double step = plan_time(config, config.data, machine_of(8), 8, 1).step;
  CHECK(plan_time(config, config.data, machine_of(2), 8, 1).step == Approx(4.0 * step));
  // Of one micro-batch only one stage is at work at a time; of many all are, but while the pipeline fills and drains.
  const RunConfig one = config_of_steps(1, 1, 4, 1);
  CHECK(plan_time(one, one.data, machine_of(1), 4, 1).step ==
        Approx(plan_time(one, one.data, machine_of(4), 4, 1).step));
  const RunConfig many = config_of_steps(1, 1, 4, 32);
  const TimePlan alone = plan_time(many, many.data, machine_of(4), 4, 1),
                 shared = plan_time(many, many.data, machine_of(1), 4, 1);
  CHECK(shared.step == Approx(step_flops(many) / kFlops));
  CHECK(plan_time(many, many.data, machine_of(2), 4, 1).step < shared.step);
  CHECK(plan_time(many, many.data, machine_of(2), 4, 1).step > alone.step);
}

TEST_CASE("time plan: a GPU hides the reduction behind backward, but for the last bucket") {
  MachineFile machine = machine_of(2, 1e9);
  machine.device = "cuda";
  RunConfig config = config_of_steps(2, 1, 1, 1);
  config.device = DeviceChoice::kCuda;
  config.parallel.bucket_mb = 1.0;
  config.parallel.zero = 0;
  const TimePlan time = plan_time(config, config.data, machine, 2, 1);
  const double bytes = 4.0 * static_cast<double>(model::num_parameters(config.model));
  const double buckets = std::ceil(bytes / 0x1p20);
  CHECK(time.reduce == Approx(bytes / 1e9 / buckets).epsilon(0.1));
  CHECK(time.backward > bytes / 1e9);
}

TEST_CASE("time plan: on GPUs tensor ranks sum beside weight gradients, and with --tp-overlap beside the other half") {
  constexpr double kBus = 1e9;
  MachineFile machine = machine_of(2, kBus);
  RunConfig config = config_of_steps(1, 2, 1, 3);
  const auto planned = [&](bool overlap) {
    config.parallel.tp_overlap = overlap;
    return plan_time(config, config.data, machine, 2, 1);
  };
  // Of one sample and sublayer; a sum between two ranks is one over the bus.
  const double sum = static_cast<double>(config.model.num_tokens()) * 256.0 * 4.0 / kBus;
  const double all = 6.0 * 2.0 * 8.0 * sum;  // samples, sublayers of a block, blocks; in forward, and in backward
  CHECK(planned(false).messages == Approx(2.0 * all));
  CHECK(planned(true).messages == Approx(2.0 * all));  // of a host
  machine.device = "cuda";
  config.device = DeviceChoice::kCuda;
  CHECK(planned(false).messages == Approx(all));
  CHECK(planned(true).messages == Approx(3.0 * sum));  // the last of each micro-batch
  CHECK(planned(false).forward - planned(true).forward == Approx(all - 3.0 * sum));
  CHECK(planned(false).backward == Approx(planned(true).backward));
  config.recompute = model::Recompute::kFull;
  CHECK(planned(false).messages == Approx(2.0 * all));

  // What is longer than what it goes beside, a weight gradient of qkv and of fc1, is exposed by the rest.
  config.recompute = model::Recompute::kNone;
  machine.populations.front().messages = machine_of(2, 1e5).populations.front().messages;
  const double beside = 2.0 * static_cast<double>(config.model.num_tokens()) * 256.0 * (384.0 + 512.0) / kFlops;
  CHECK(planned(false).messages == Approx(2e4 * all - 6.0 * 8.0 * beside));
}

TEST_CASE("time plan: what a machine file does not tell is named") {
  RunConfig config = config_of_steps(1, 1, 1, 1);
  MachineFile machine = machine_of(1);
  CHECK(missing_rates(machine, config.precision.kind, at::kCPU, {}).empty());
  CHECK(contains(missing_rates(machine, config.precision.kind, at::kCUDA, {}), "of a machine that computes on 'cpu'"));
  config.precision.kind = Precision::kBf16;
  CHECK(contains(missing_rates(machine, config.precision.kind, at::kCPU, {}),
                 "it has no rates of bf16 for 1 rank a node with 1 thread;"));
  config.precision.kind = Precision::kFp32;
  machine.populations[0].types["fp32"].erase("norm_backward");
  CHECK(missing_rates(machine, config.precision.kind, at::kCPU, {}) == "it has no rate of norm_backward in fp32");
  const Error error = thrown_error([&] { require_rates(machine, "m.json", config.precision.kind, at::kCPU, {}); });
  CHECK(error.error_class() == ErrorClass::kUsage);
  CHECK(contains(error.message(), "--machine m.json tells no times of this training: it has no rate of norm_backward"));
}

TEST_CASE("time plan: messages that a machine file does not know are not free") {
  const auto missing = [](const MachineFile& machine, RanksOnNodes ranks) {
    return missing_rates(machine, Precision::kFp32, at::kCPU, ranks);
  };
  MachineFile machine = machine_of(1);
  machine.populations.front().messages.clear();
  CHECK(missing(machine, {.ranks = 1, .per_node = 8}).empty());
  CHECK(contains(missing(machine, {.ranks = 2, .per_node = 2}), "no rate of all_reduce between ranks of a node"));
  CHECK(contains(missing(machine, {.ranks = 5, .per_node = 1}),
                 "it does not know what joins nodes ('between_nodes'), and the 5 ranks are on 5;"));
  machine.between_nodes.bytes_per_s = 1e9;
  CHECK(missing(machine, {.ranks = 5, .per_node = 1}).empty());
  constexpr double kBus = 1e6;
  // Of those that were measured with several ranks.
  machine.populations.push_back(machine_of(2, kBus).populations.front());
  machine.populations.back().threads = 2;
  CHECK(missing(machine, {.ranks = 2, .per_node = 2}).empty());
  const RunConfig config = config_of_steps(2, 1, 1, 1);
  MachineFile other = machine_of(2, kBus);
  other.cores = machine.cores = 2;
  CHECK(plan_time(config, config.data, machine, 2, 1).reduce == plan_time(config, config.data, other, 2, 1).reduce);
  machine.populations.back().messages.erase("exchange");
  CHECK(contains(missing(machine, {.ranks = 2, .per_node = 2}), "no rate of exchange between ranks of a node"));
}

TEST_CASE("time plan: rates of other ranks and threads are told of") {
  MachineFile machine = machine_of(2);
  machine.cores = 2;
  CHECK(other_population("m.json", machine, 2, 1).empty());
  CHECK(other_population("m.json", machine, 4, 1).empty());  // two at one time
  CHECK(
      contains(other_population("m.json", machine, 1, 1),
               "those of 2 ranks a node with 1 thread, the nearest that the machine file has, and here it is 1 rank a "
               "node with 1 thread; mpirun -n 1 vit_hybrid calibrate --threads 1 adds them to it"));
  CHECK(contains(other_population("m.json", machine, 2, 2), "and here it is 1 rank a node with 2 threads"));
  machine.device = "cuda";
  CHECK(other_population("m.json", machine, 2, 2).empty());
}
