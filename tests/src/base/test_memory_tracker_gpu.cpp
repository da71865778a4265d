// Device memory: none is asked of the driver after the second step, all of it has a class, and running out of it is a
// sentence.
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <doctest/doctest.h>

#include "parallel/comm/failure.h"
#include "parallel/comm/make_communicator.h"
#include "src/base/memory_tracker.h"
#include "tests/support/contains.h"
#include "tests/support/gpu/host_comparison.h"
#include "tests/support/gpu/own_gpu.h"
#include "tests/support/mpi_test.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

Layout layout_of_world() {
  const int size = world_size();
  Layout layout;
  layout.tp = size % 2 == 0 ? 2 : 1;
  layout.pp = size % 4 == 0 ? 2 : 1;
  layout.dp = size / (layout.tp * layout.pp);
  return layout;
}

int64_t untagged_bytes() {
  return MemoryTracker::report().current[static_cast<size_t>(MemoryClass::kUntagged)];
}

}  // namespace

// With several stages, when a tensor comes back from its stream depends on the ranks' pace.
TEST_CASE("gpu allocations: none after the second step of a training, or of stages the fourth") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const c10::Device gpu = own_gpu();
  for (const char* precision : {"fp32", "fp16"}) {
    Experiment experiment = gpu_experiment(small_forecaster(), precision);
    const Layout layout = layout_of_world();
    experiment.global_batches.assign(10, 8);
    Training training(experiment, layout, world, gpu);
    training.run_steps(layout.pp > 1 ? 4 : 2);
    const int64_t before = device_allocations();
    CHECK(before > 0);
    training.run_steps();
    CAPTURE(precision);
    CHECK(device_allocations() == before);
  }
}

TEST_CASE("gpu allocations: none in operations of a communicator") {
  const c10::Device gpu = own_gpu();
  const auto group = comm::make_communicator("test", comm::MpiGroup::world(), gpu, nullptr, gpu_transport());
  const at::Tensor x = at::ones({1 << 16}, at::TensorOptions(at::kHalf).device(gpu));
  group->all_reduce(x, comm::ReduceOp::kMax).wait();
  const int64_t before = device_allocations();
  for (int i = 0; i < 100; ++i) {
    group->all_reduce(x, comm::ReduceOp::kMax).wait();
    group->barrier().wait();
  }
  CHECK(device_allocations() - before <= 1);  // the barrier's token
}

TEST_CASE("gpu memory: what a backward pass allocates has the class of the thread that started it") {
  const MemoryTracker::Attachment attachment;
  const MemoryScope scope(MemoryClass::kActivations);
  const at::Tensor x = at::ones({1 << 20}, at::TensorOptions(at::kFloat).device(own_gpu())).requires_grad_();
  const int64_t before = untagged_bytes();
  x.mul(x).sum().backward();
  CHECK(x.grad().defined());
  CHECK(untagged_bytes() == before);
}

TEST_CASE("gpu memory: running out of it says how much was asked for, for what, and what is held") {
  const MemoryTracker::Attachment attachment;
  const c10::Device gpu = own_gpu();
  const MemoryScope held_scope(MemoryClass::kOptimizer);
  const at::Tensor held = at::empty({int64_t{64} << 20}, at::TensorOptions(at::kByte).device(gpu));
  const MemoryScope scope(MemoryClass::kActivations);
  std::string message;
  try {
    at::empty({int64_t{1} << 42}, at::TensorOptions(at::kByte).device(gpu));
  } catch (const std::exception& exception) {
    const Error error = comm::as_error(exception);
    CHECK(error.error_class() == ErrorClass::kUsage);
    message = error.message();
  }
  CAPTURE(message);
  CHECK(contains(message, "out of memory: 4.00 TiB were asked for activations on " + gpu.str()));
  CHECK(contains(message, "optimizer 64.0 MiB"));
}
