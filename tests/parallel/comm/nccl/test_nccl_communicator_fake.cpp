// NCCL's back end on the fake device: what every back end must do, and mistakes that are planted and found.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/comm/nccl/device_marks.h"
#include "src/base/trace.h"
#include "tests/parallel/comm/nccl/fake_device.h"
#include "tests/support/communicator_suite.h"
#include "tests/support/mpi_test.h"

namespace vit_hybrid::testing {

namespace {

using comm::Communicator;
using comm::MpiGroup;
using comm::ReduceOp;

std::unique_ptr<Communicator> make_world(const std::string& axis = "world") {
  return comm::make_communicator(axis, MpiGroup::world(), at::kCPU);
}

// Rank 0 begins an operation and does something before it waits; the others begin it only then: so it is in flight.
void before_others_begin(const std::function<comm::Work()>& begin, const std::function<void()>& act) {
  const MpiGroup processes = MpiGroup::world();
  if (processes.rank() != 0) processes.barrier();
  comm::Work work = begin();
  if (processes.rank() == 0) {
    act();
    processes.barrier();
  }
  work.wait();
}

// On rank 0.
void check_found(const std::string& text) {
  const auto faults = take_faults();
  if (world_rank() != 0) return;
  REQUIRE(!faults.empty());
  CHECK(faults.front() == text);
}

}  // namespace

TEST_CASE("fake device: conformance of NCCL's back end on the world and on parts of it") {
  const FakeDeviceInUse fake;
  const MpiGroup processes = MpiGroup::world();
  const auto world = make_world();
  CHECK(world->back_end() == (world->size() == 1 ? "self" : "nccl " + comm::nccl_version()));
  check_communicator(*world, at::kCPU, {world->size()});
  CHECK(take_faults().empty());
  if (world->size() == 8) return;  // takes its time
  for (const int color : {processes.rank() % 2, processes.rank() == processes.size() - 1 ? 1 : 0}) {
    const auto part = comm::make_communicator("test", processes.split(color), at::kCPU, world.get());
    check_communicator(*part, at::kCPU, {part->size()});
  }
  CHECK(take_faults().empty());
}

TEST_CASE("fake device: who reads the result of an operation too early finds poison") {
  const FakeDeviceInUse fake;
  const auto world = make_world();
  const at::Tensor x = at::full({100}, 1.0, at::kFloat);
  const auto begin = [&] { return world->all_reduce(x, ReduceOp::kSum); };
  before_others_begin(begin, [&] { CHECK(x.isnan().all().item<bool>()); });
  CHECK(x.eq(world->size()).all().item<bool>());
  CHECK(take_faults().empty());
}

TEST_CASE("fake device: who writes to memory that is in flight is found") {
  const FakeDeviceInUse fake;
  const auto world = make_world();
  const at::Tensor input = at::full({100}, 1.0, at::kFloat);
  const at::Tensor output = at::empty({100 * world->size()}, at::kFloat);
  const auto begin = [&] { return world->all_gather(output, input); };
  before_others_begin(begin, [&] { input.fill_(2.0); });
  check_found("the input of ncclAllGather was written to while that was in flight");
  before_others_begin(begin, [&] { output.fill_(2.0); });
  check_found("the output of ncclAllGather was written to while that was in flight");
}

TEST_CASE("fake device: an operation that does not wait for what the caller has begun is found") {
  FakeDeviceInUse fake;
  const auto world = make_world();
  const at::Tensor x = at::full({100}, 1.0, at::kFloat);
  fake->streams_wait = false;
  world->all_reduce(x, ReduceOp::kSum).wait();
  check_found("ncclAllReduce does not wait for what the caller has begun");
  CHECK(x.eq(world->size()).all().item<bool>());  // so no number tells of it
  fake->streams_wait = true;
  world->all_reduce(x, ReduceOp::kSum).wait();
  CHECK(take_faults().empty());
}

TEST_CASE("fake device: operations of two axes on the same memory at once are found") {
  const FakeDeviceInUse fake;
  const auto one = make_world("one");
  const auto other = make_world("other");
  const at::Tensor x = at::full({100}, 1.0, at::kFloat);
  comm::Work second;
  const auto begin = [&] { return one->all_reduce(x, ReduceOp::kMax); };
  before_others_begin(begin, [&] { second = other->all_reduce(x, ReduceOp::kMax); });
  if (one->rank() != 0) second = other->all_reduce(x, ReduceOp::kMax);
  second.wait();
  check_found("ncclAllReduce and ncclAllReduce of another stream share memory");
}

TEST_CASE("fake device: a trace has when an operation ran, beside when it was asked for") {
  FakeDeviceInUse fake;
  const auto world = make_world();
  if (world->size() == 1) return;
  const at::Tensor x = at::full({100}, 1.0, at::kFloat);
  fake->runs_late = true;
  constexpr std::chrono::milliseconds kPause(20);
  trace::start_recording(100, comm::device_marks(c10::Device(at::kCUDA, 0)));
  const int64_t before = trace::now();
  comm::Work work = world->all_reduce(x, ReduceOp::kSum);
  std::this_thread::sleep_for(kPause);
  const int64_t awaited = trace::now();
  work.wait();
  { const trace::Scope phase({.name = "optimizer"}); }
  const trace::Recording recording = trace::stop_recording();
  const int64_t after = trace::now();
  const auto found = [&](const std::string& name, bool on_device) {
    const auto event = std::find_if(recording.events.begin(), recording.events.end(), [&](const trace::Event& one) {
      return one.name == name && one.on_device == on_device && one.kind != trace::Kind::kWait;
    });
    REQUIRE(event != recording.events.end());
    return *event;
  };
  const trace::Event asked = found("all_reduce", false), ran = found("all_reduce", true);
  CHECK(asked.begin >= before);
  CHECK(asked.begin < awaited);
  CHECK(ran.begin <= ran.end);
  CHECK(ran.end >= awaited);  // it runs late: when it is waited for
  CHECK(ran.end <= after);
  CHECK(ran.number == asked.number);
  CHECK(ran.bytes == 400);
  CHECK(std::string(ran.axis) == "world");
  const trace::Event phase = found("optimizer", true);
  CHECK(phase.begin >= awaited);
  CHECK(phase.end >= phase.begin);
}

}  // namespace vit_hybrid::testing
