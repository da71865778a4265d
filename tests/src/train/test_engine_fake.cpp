// Training on the fake device, with NCCL's back end under every axis: the bits are those of the host's back ends, and a
// wait that is left out anywhere in the step is found.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <doctest/doctest.h>
#include <nccl.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/nccl/device_stream.h"
#include "parallel/mesh/device_mesh.h"
#include "tests/parallel/comm/nccl/fake_device.h"
#include "tests/parallel/comm/nccl/fake_nccl_sockets.h"
#include "tests/parallel/comm/nccl/fake_recorder.h"
#include "tests/support/test_layouts.h"
#include "tests/support/thrown_error.h"
#include "tests/support/training_harness.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

Experiment experiment(const char* precision, zero::OptimizerKind optimizer = zero::OptimizerKind::kAdamW) {
  Experiment result;
  result.name = precision;
  result.options.model = small_forecaster();
  result.options.model.depth = 3;
  result.options.model.dropout = 0.1;
  result.options.precision = zero::make_precision_policy(precision);
  result.options.loss_scale = zero::loss_scale_options(result.options.precision.compute == at::kHalf, 0.0);
  result.options.optimizer.kind = optimizer;
  result.options.optimizer.weight_decay = 0.01;
  result.options.clip_norm = 1.0;
  result.options.bucket_bytes = 8 << 10;
  result.options.seed = 11;
  result.global_batches = {17, 13, 4};  // some replicas have fewer micro-batches than others
  return result;
}

// The bf16 gradients are reduced in bf16, from copies.
Experiment with_half_reduction(Experiment plain) {
  plain.name += ", half reduction";
  plain.options.precision.reduce = plain.options.precision.compute;
  return plain;
}

// Sums over the tensor axis are on their way while the other part of a micro-batch is computed.
Experiment in_parts(Experiment whole) {
  whole.name += ", micro-batches in parts";
  whole.options.micro_batch_parts = 2;
  return whole;
}

// On 8 ranks only those of all three axes, and of parts of the data axis.
std::vector<Layout> layouts(int num_ranks) {
  std::vector<Layout> result = test_layouts(num_ranks);
  std::erase_if(result, [num_ranks](const Layout& layout) {
    return num_ranks == 8 && layout.shard == 0 && std::min({layout.dp, layout.tp, layout.pp}) == 1;
  });
  return result;
}

// Host tensors are not freed while this object lives, as who does not wait may free what is still written to.
class KeptMemory : public c10::Allocator {
 public:
  KeptMemory() { c10::SetCPUAllocator(this, kPriority); }
  ~KeptMemory() override { c10::SetCPUAllocator(usual_, kPriority); }

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr data = usual_->allocate(bytes);
    void* const place = data.get();
    data.release_context();
    return {place, place, [](void* /*place*/) {}, at::kCPU};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static constexpr uint8_t kPriority = 1;
  c10::Allocator* const usual_ = c10::GetCPUAllocator();
};

}  // namespace

TEST_CASE("engine on the fake device: the bits of the host's back ends, whatever the delays") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  uint64_t seed = 0;
  for (Experiment experiment : {experiment("fp32"), with_half_reduction(experiment("bf16")),
                                experiment("fp16", zero::OptimizerKind::kLamb), in_parts(experiment("fp32"))}) {
    for (const Layout& layout : layouts(world.size())) {
      CAPTURE(experiment.name);
      CAPTURE(layout.text());
      experiment.gathers_gradients = true;
      TrainingOutcome on_host = run(experiment, layout, world);
      FakeDeviceInUse fake;
      fake->seed = ++seed;
      CHECK(same(run(experiment, layout, world), on_host));
      fake->runs_late = true;
      experiment.gathers_gradients = false;  // would be waits between the steps
      on_host.gradients.clear();
      CHECK(same(run(experiment, layout, world), on_host));
      CHECK(take_faults().empty());
    }
  }
}

// In one phase of a step after the other; those for parameters, which are in forward, on one tensor rank, too: there
// nothing else is waited for in that phase; and those for sums over the tensor axis alone.
TEST_CASE("engine on the fake device: waits that are left out are found") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  if (world.size() != 8) return;
  const KeptMemory memory;
  Experiment whole = experiment("fp32");
  whole.global_batches = {17, 13};
  whole.gathers_gradients = false;
  struct Plant {
    Experiment trained;
    Layout layout;
    std::vector<std::string> phases;
  };
  const std::vector<Plant> plants = {
      {whole, {2, 2, 2}, {"forward and backward", "forward", "backward", "gradient reduction"}},
      {whole, {4, 1, 2}, {"forward"}},
      {in_parts(whole), {1, 8, 1}, {"forward"}}};
  for (const auto& [trained, layout, phases] : plants) {
    const TrainingOutcome on_host = run(trained, layout, world);
    for (const std::string& phase : phases) {
      CAPTURE(trained.name);
      CAPTURE(layout.text());
      CAPTURE(phase);
      FakeDeviceInUse fake;
      fake->runs_late = true;
      fake->phase_without_waits = phase;
      CHECK(!same(run(trained, layout, world), on_host));
      static_cast<void>(take_faults());  // of who writes to what is in flight
    }
  }
}

namespace {

// Without random draws, and in several micro-batches a step.
Experiment recordable(int micro_batch_parts) {
  Experiment result = experiment("fp32");
  result.options.model.dropout = 0.0;
  result.options.micro_batch_parts = micro_batch_parts;
  result.options.bucket_bytes = 2 << 10;
  return result;
}

struct RecordedTraining {
  RecordedTraining(Experiment with_recorder, const Layout& layout, Unrecordable unrecordable)
      : recorder(std::make_shared<FakeRecorder>(unrecordable)), experiment(std::move(with_recorder)) {
    experiment.options.recorder = recorder;
    training.emplace(experiment, layout, world);
    recorder->watch(changed_tensors(training->engine()));
  }

  comm::MpiGroup world = comm::MpiGroup::world();
  std::shared_ptr<FakeRecorder> recorder;
  Experiment experiment;
  std::optional<Training> training;
};

// Layouts with tensor ranks and one stage.
std::vector<Layout> recorded_layouts(int num_ranks) {
  std::vector<Layout> result;
  for (int tp = 2; tp <= std::min(num_ranks, 4); tp *= 2) {
    result.push_back({.dp = num_ranks / tp, .tp = tp});
  }
  return result;
}

}  // namespace

TEST_CASE(
    "engine on the fake device: recorded sums of tensor ranks have the bits and the counts of those that are not") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  uint64_t seed = 100;
  for (const int parts : {1, 2}) {
    Experiment experiment = recordable(parts);
    for (const Layout& layout : recorded_layouts(world.size())) {
      CAPTURE(parts);
      CAPTURE(layout.text());
      const int64_t five = 3 * 5 * layout.dp;  // micro-batches of a replica
      const int64_t one = 3 * layout.dp;       // which is never recorded of several replicas
      experiment.global_batches = {five, one, one, five};
      const TrainingOutcome on_host = run(experiment, layout, world);
      FakeDeviceInUse fake;
      fake->seed = ++seed;
      OperationCounts counts;
      CHECK(same(run(experiment, layout, world), on_host));
      const auto plain_counts = counts.of_last_part();
      REQUIRE(plain_counts.contains("tensor"));
      for (const bool runs_late : {false, true}) {
        fake->runs_late = runs_late;
        RecordedTraining recorded(experiment, layout, Unrecordable::kRefused);
        recorded.training->run_steps();
        CHECK(same(recorded.training->outcome(), on_host));
        CHECK(counts.of_last_part() == plain_counts);
        // Forward and backward, of one replica also of the small step; then five again, whose graphs were given up.
        CHECK(recorded.recorder->num_recorded() == (layout.dp == 1 ? 6 : 2));
        CHECK(recorded.recorder->num_replayed() == 2 * (layout.dp == 1 ? 4 + 1 + 5 : 2 + 3));
        recorded.training.reset();
        CHECK(take_faults().empty());
        static_cast<void>(counts.of_last_part());
      }
    }
  }
}

TEST_CASE("engine on the fake device: what one tensor rank cannot record, all do as it comes") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  if (world.size() != 2) return;
  Experiment experiment = recordable(1);
  experiment.global_batches = {9, 9};
  const TrainingOutcome on_host = run(experiment, {.tp = 2}, world);
  const FakeDeviceInUse fake;
  RecordedTraining recorded(experiment, {.tp = 2}, Unrecordable::kDonePlainly);
  recorded.recorder->at_end = [&] {
    if (world.rank() == 1) static_cast<void>(comm::DeviceEvent().query());  // throws, as it does on a GPU
  };
  recorded.training->run_steps();
  CHECK(same(recorded.training->outcome(), on_host));
  CHECK(recorded.recorder->num_recorded() == 1 - world.rank());
  CHECK(recorded.recorder->num_replayed() == 0);
  CHECK(take_faults().empty());
}

TEST_CASE("engine on the fake device: waits that are left out of a recording, or of its replays, are found") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  if (world.size() != 2) return;
  const KeptMemory memory;
  const std::string failed = "the step could not be recorded as a CUDA graph: ";
  Experiment experiment = recordable(1);
  experiment.global_batches = {3, 3, 3};  // the first micro-batch is computed as it comes, the second one recorded
  experiment.gathers_gradients = false;
  const TrainingOutcome on_host = run(experiment, {.tp = 2}, world);
  for (const std::string phase : {"forward", "backward"}) {
    CAPTURE(phase);
    FakeDeviceInUse fake;
    fake->runs_late = true;
    RecordedTraining replayed(experiment, {.tp = 2}, Unrecordable::kRefused);
    replayed.training->run_steps(2);
    fake->phase_without_waits = phase;
    replayed.training->run_steps(1);
    CHECK(!same(replayed.training->outcome(), on_host));
    static_cast<void>(take_faults());
  }
  FakeDeviceInUse fake;
  RecordedTraining unjoined(experiment, {.tp = 2}, Unrecordable::kRefused);
  unjoined.training->run_steps(1);
  fake->phase_without_waits = "forward";  // in which backward is recorded, too
  CHECK(thrown_error([&] { unjoined.training->run_steps(1); }).message() ==
        failed + "capturing stream has unjoined work");
  fake->phase_without_waits.reset();
  RecordedTraining unforked(experiment, {.tp = 2}, Unrecordable::kRefused);
  unforked.training->run_steps(1);
  fake->streams_wait = false;
  CHECK(thrown_error([&] { unforked.training->run_steps(1); }).message() ==
        failed + "dependency created on uncaptured work in another stream");
  const auto faults = take_faults();
  REQUIRE(!faults.empty());
  CHECK(faults.front() == "ncclAllReduce does not wait for what the caller has begun");
}

// The groups have their sizes and each of their members its rank, but two members are in each other's group.
TEST_CASE("engine on the fake device: split colors of two ranks that are exchanged are found") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  if (world.size() != 8) return;
  const Layout layout{2, 2, 2};  // tensor groups are 0 and 1, ..., 4 and 5, 6 and 7
  Experiment trained = experiment("fp32");
  trained.global_batches = {12};  // all messages have one size
  const TrainingOutcome on_host = run(trained, layout, world);
  const FakeDeviceInUse fake;
  fake_nccl_sockets().other_color = [rank = world.rank()](int color) {
    return rank == 5 && color == 4 ? 6 : rank == 7 && color == 6 ? 4 : color;
  };
  CHECK(!same(run(trained, layout, world), on_host));
  fake_nccl_sockets().other_color = nullptr;
}

namespace {

// Of the communicators of a mesh, in the order of their making.
template <class T>
std::vector<T> of_splits(const mesh::ParallelDims& dims, const comm::TransportOptions& options, T FakeSplit::*figure) {
  fake_nccl_sockets().splits.clear();
  const mesh::DeviceMesh mesh(dims, comm::MpiGroup::world(), at::kCPU, options);
  std::vector<T> figures;
  for (const auto& split : fake_nccl_sockets().splits)
    figures.push_back((*split).*figure);
  return figures;
}

}  // namespace

// The reductions of the data axis run beside products, whose blocks they take.
TEST_CASE("engine on the fake device: NCCL's blocks are bounded where they were asked to be") {
  if (comm::MpiGroup::world().size() != 8) return;
  const FakeDeviceInUse fake;
  comm::TransportOptions options;
  options.most_blocks = 7;
  constexpr int kAny = NCCL_CONFIG_UNDEF_INT;
  // World, data, tensor, pipeline; shard and replica come last.
  CHECK(of_splits({2, 2, 2}, options, &FakeSplit::most_blocks) == std::vector<int>{2, 7, kAny, kAny});
  CHECK(of_splits({4, 2, 1, mesh::kDefaultOrder, 2}, options, &FakeSplit::most_blocks) ==
        std::vector<int>{2, 7, kAny, kAny, 7, 7});
}

// A value a rank is as little as a gather has. Where the data axis is cut, all that is long goes over its parts.
TEST_CASE("engine on the fake device: groups warm up by what goes over them, the world by the smallest operations") {
  if (comm::MpiGroup::world().size() != 8) return;
  const FakeDeviceInUse fake;
  constexpr size_t kValue = sizeof(float), kWarm = 48 << 10, kNone = 0;
  comm::TransportOptions options;
  options.warm_up_bytes = kWarm;
  CHECK(of_splits({2, 2, 2}, options, &FakeSplit::most_bytes) == std::vector<size_t>{8 * kValue, kWarm, kWarm, kWarm});
  CHECK(of_splits({4, 2, 1, mesh::kDefaultOrder, 2}, options, &FakeSplit::most_bytes) ==
        std::vector<size_t>{8 * kValue, 4 * kValue, kWarm, kNone, kWarm, kWarm});
  options.warm_up_bytes = 0;  // ranks share a GPU
  CHECK(of_splits({2, 2, 2}, options, &FakeSplit::most_bytes) ==
        std::vector<size_t>{8 * kValue, 2 * kValue, 2 * kValue, 2 * kValue});
}
