// The host back ends: the conformance suite on the world and on parts of it, by messages and through shared memory.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/host_task.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/autograd_node.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/shareable_tensor.h"
#include "src/base/timer.h"
#include "tests/support/communicator_suite.h"
#include "tests/support/statistics.h"

namespace vit_hybrid::testing {

namespace {

using comm::Communicator;
using comm::HostPath;
using comm::MpiGroup;
using comm::ReduceOp;
using comm::Transfer;
using Direction = comm::Transfer::Direction;

std::unique_ptr<Communicator> make(MpiGroup group, const comm::TransportOptions& options = {}) {
  return comm::make_communicator("test", std::move(group), at::kCPU, nullptr, options);
}

comm::TransportOptions path(HostPath path) {
  comm::TransportOptions options;
  options.host_path = path;
  return options;
}

// Every limit so small that each tensor of the suite is cut many times; and the way into slots that this processor does
// not take.
comm::TransportOptions small_pieces(HostPath path) {
  comm::TransportOptions options;
  options.host_path = path;
  options.max_message_bytes = 5000;
  options.slot_bytes = options.slot_bytes_between_nodes = 4160;
  options.slots_past_caches = !options.slots_past_caches;
  return options;
}

void check(MpiGroup group, const comm::TransportOptions& options) {
  const auto communicator = make(std::move(group), options);
  check_communicator(*communicator, at::kCPU, {communicator->size()});
}

}  // namespace

TEST_CASE("communicator: default path on the world") {
  const MpiGroup world = MpiGroup::world();
  const auto communicator = make(world.duplicate());
  CHECK(communicator->back_end() == (world.size() == 1 ? "self" : "mpi, shared memory"));
  check_communicator(*communicator, at::kCPU, {communicator->size()});
}

TEST_CASE("communicator: messages") {
  const MpiGroup world = MpiGroup::world();
  check(world.duplicate(), path(HostPath::kMessages));
}

TEST_CASE("communicator: messages in small pieces") {
  const MpiGroup world = MpiGroup::world();
  check(world.duplicate(), small_pieces(HostPath::kMessages));
}

TEST_CASE("communicator: shared memory in small slots") {
  const MpiGroup world = MpiGroup::world();
  check(world.duplicate(), small_pieces(HostPath::kSharedMemory));
}

TEST_CASE("communicator: parts of the world") {
  const MpiGroup world = MpiGroup::world();
  // Every other rank; and all but the last, which stays alone: groups of 1, 2, 3, 4 and 7.
  check(world.split(world.rank() % 2), {});
  check(world.split(world.rank() == world.size() - 1 ? 1 : 0), path(HostPath::kMessages));
  check(world.split(world.rank() / 3), path(HostPath::kSharedMemory));
}

// Runs of `size` ranks, and what is left.
std::vector<int> runs_of(int size, int num_ranks) {
  std::vector<int> runs(static_cast<size_t>(num_ranks / size), size);
  if (num_ranks % size > 0) runs.push_back(num_ranks % size);
  return runs;
}

// On nodes that this machine makes believe it is.
TEST_CASE("communicator: node by node, with the nodes as blocks of the sums") {
  const MpiGroup world = MpiGroup::world();
  const int size = world.size();
  if (size < 2) return;
  const auto check_nodes = [&](const std::vector<int>& nodes, comm::TransportOptions options) {
    options.nodes = nodes;
    const auto communicator = make(world.duplicate(), options);
    const size_t count = nodes.size();
    CHECK(communicator->back_end() == (count == 1                           ? "mpi, shared memory"
                                       : count == static_cast<size_t>(size) ? "mpi, messages"
                                                                            : "mpi, node by node"));
    check_communicator(*communicator, at::kCPU, nodes);
  };
  check_nodes(runs_of(2, size), small_pieces(HostPath::kAuto));
  check_nodes(runs_of(3, size), path(HostPath::kAuto));
  check_nodes({1, size - 1}, small_pieces(HostPath::kAuto));
}

TEST_CASE("communicator: many nodes exchange in two steps, and have the bits of one") {
  const MpiGroup world = MpiGroup::world();
  const int size = world.size();
  std::vector<std::vector<int>> of_nodes = {std::vector<int>(static_cast<size_t>(size), 1)};
  if (size == 8) of_nodes.insert(of_nodes.end(), {{2, 2, 2, 2}, {1, 3, 2, 2}, {1, 1, 1, 2, 2, 1}});
  for (const auto& nodes : of_nodes) {
    comm::TransportOptions options = small_pieces(HostPath::kAuto);
    options.nodes = nodes;
    options.most_nodes_in_one_step = 2;
    check_communicator(*make(world.duplicate(), options), at::kCPU, nodes);
  }
}

// As MemoryTracker counts it, after so many rounds that every rank has led some in all of its slots.
TEST_CASE("communicator: what a rank holds for sums over nodes is what host_group_bytes() says") {
  const MemoryTracker::Attachment attachment;
  const auto held = [] { return MemoryTracker::report().current[static_cast<size_t>(MemoryClass::kCommunication)]; };
  const MpiGroup world = MpiGroup::world();
  const int size = world.size();
  if (size < 2) return;
  std::vector<std::vector<int>> of_nodes = {
      {size}, runs_of(1, size), runs_of(2, size), runs_of(3, size), {1, size - 1}};
  if (size == 8) of_nodes.insert(of_nodes.end(), {{2, 2, 2, 2}, {1, 3, 2, 2}, {4, 4}, {6, 2}});
  constexpr int64_t kSlot = int64_t{32} << 10;
  for (const auto& nodes : of_nodes) {
    for (const bool blocks_are_nodes : {true, false}) {
      comm::TransportOptions options = path(HostPath::kAuto);
      options.slot_bytes_between_nodes = kSlot;
      options.nodes = nodes;
      options.most_nodes_in_one_step = 3;
      if (!blocks_are_nodes) options.sum_blocks = {size};
      for (const int64_t elements : {int64_t{8}, int64_t{1000}, kSlot / 4 - 80, kSlot + kSlot / 4}) {
        for (const bool scatters : {false, true}) {
          CAPTURE(nodes);
          CAPTURE(blocks_are_nodes);
          CAPTURE(elements);
          CAPTURE(scatters);
          const at::Tensor part = at::zeros({elements / size}, at::kFloat);
          const at::Tensor whole = at::zeros({elements / size * size}, at::kFloat);
          const int64_t before = held();
          const auto communicator = make(world.duplicate(), options);
          for (int i = 0; i < 4 * size; ++i) {
            (scatters ? communicator->reduce_scatter(part, whole, ReduceOp::kSum)
                      : communicator->all_reduce(whole, ReduceOp::kSum))
                .wait();
          }
          CHECK(held() - before == comm::host_group_bytes(world.rank(), options, {scatters, whole.numel(), 4}));
        }
      }
    }
  }
}

TEST_CASE("communicator: the blocks of the sums are the same on every path") {
  const MpiGroup world = MpiGroup::world();
  const int size = world.size();
  if (size < 2) return;
  comm::TransportOptions shared = path(HostPath::kSharedMemory);
  comm::TransportOptions messages = small_pieces(HostPath::kMessages);
  comm::TransportOptions other_nodes = path(HostPath::kAuto);  // which are not the blocks
  other_nodes.nodes = {size - 1, 1};
  for (comm::TransportOptions* options : {&shared, &messages, &other_nodes}) {
    options->sum_blocks = size == 2 ? std::vector<int>{2} : runs_of(3, size);
    const auto communicator = make(world.duplicate(), *options);
    const bool are_nodes = options->sum_blocks == options->nodes;
    CHECK(communicator->back_end() == (options == &shared ? "mpi, shared memory"
                                       : are_nodes        ? "mpi, node by node"
                                                          : "mpi, messages"));
    check_communicator(*communicator, at::kCPU, options->sum_blocks);
  }
}

TEST_CASE("communicator: one rank ahead on one axis does not hold up another axis") {
  const MpiGroup world = MpiGroup::world();
  if (world.size() < 2) return;
  for (const HostPath host_path : {HostPath::kMessages, HostPath::kSharedMemory}) {
    const auto a = make(world.duplicate(), small_pieces(host_path));
    const auto b = make(world.duplicate(), small_pieces(host_path));
    const at::Tensor x = at::full({50000}, world.rank(), at::kLong);
    const at::Tensor y = at::full({50000}, world.rank(), at::kLong);
    comm::Work on_a = a->all_reduce(x, ReduceOp::kSum);
    comm::Work on_b = b->all_reduce(y, ReduceOp::kSum);
    // Both are only started everywhere; each rank waits for another one first.
    comm::Work& first = world.rank() % 2 == 0 ? on_a : on_b;
    comm::Work& second = world.rank() % 2 == 0 ? on_b : on_a;
    first.wait();
    second.wait();
    const int64_t sum = static_cast<int64_t>(world.size()) * (world.size() - 1) / 2;
    CHECK(x.eq(sum).all().item<bool>());
    CHECK(y.eq(sum).all().item<bool>());
  }
}

// One rank comes late to the first operation: who began the second one without it would add up what is not there yet.
TEST_CASE("communicator: a sum that follows an operation of another group begins when that is complete") {
  const MpiGroup world = MpiGroup::world();
  if (world.size() % 4 != 0) return;
  for (const auto& options :
       {small_pieces(HostPath::kMessages), small_pieces(HostPath::kSharedMemory), path(HostPath::kAuto)}) {
    const auto pairs = make(world.split(world.rank() / 2), options);
    const auto others = make(world.split(world.rank() % 2), options);
    for (const int late : {0, world.size() - 1}) {
      const at::Tensor x = at::full({2 * 3000}, world.rank() + 1, at::kLong);
      const at::Tensor part = x.narrow(0, pairs->rank() * 3000, 3000);
      if (world.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      comm::Work scattered = pairs->reduce_scatter(part, x, ReduceOp::kSum);
      comm::Work summed = others->all_reduce_after(scattered, part, ReduceOp::kSum);
      summed.wait();  // which the first one need not have been waited for before
      CHECK(part.eq(world.size() * (world.size() + 1) / 2).all().item<bool>());
      CHECK(scattered.test());
      at::Tensor y = at::full({5}, 1, at::kLong);  // complete ones are followed at once
      others->all_reduce_after(scattered, y, ReduceOp::kSum).wait();
      CHECK(y.eq(others->size()).all().item<bool>());
    }
  }
}

// Views of shared tensors beside copies of them, on one node and on several: the same bits, also where the values
// change as soon as an operation is complete here, which others may still be in.
TEST_CASE("communicator: of shared tensors every rank gets the bits of tensors that are not") {
  const MpiGroup world = MpiGroup::world();
  const int size = world.size();
  if (size < 2) return;
  std::vector<std::vector<int>> of_nodes = {{size}, runs_of(2, size), runs_of(3, size), {1, size - 1}};
  for (const auto& nodes : of_nodes) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
      CAPTURE(nodes);
      CAPTURE(c10::toString(type));
      comm::TransportOptions options = small_pieces(HostPath::kAuto);
      options.nodes = nodes;
      const auto group = make(world.duplicate(), options);
      const at::Tensor shared = shareable_zeros(200000, type);
      group->share(shared);
      for (int64_t step = 0, begin = 0; step < 12; ++step, begin += 1000 + step) {
        const int64_t part = step % 3 == 0 ? 3 : 1000 * step + 7;
        const at::Tensor view = shared.narrow(0, begin, part * size);
        view.copy_(at::arange(part * size, at::kDouble).add_(1.0 + world.rank()).reciprocal_());
        const at::Tensor plain = view.clone();
        const at::Tensor own = view.narrow(0, group->rank() * part, part);
        const at::Tensor own_plain = plain.narrow(0, group->rank() * part, part);
        const ReduceOp op = step % 5 == 4 ? ReduceOp::kMax : ReduceOp::kSum;
        if (step % 2 == 0) {
          group->all_reduce(view, op).wait();
          group->all_reduce(plain, op).wait();
          CHECK(view.equal(plain));
        } else {
          group->reduce_scatter(own, view, op).wait();
          group->reduce_scatter(own_plain, plain, op).wait();
          CHECK(own.equal(own_plain));
          view.narrow(0, 0, group->rank() * part).fill_(-1.0);
          comm::Work gathered = group->all_gather(view, own);
          group->all_gather(plain, own_plain).wait();
          gathered.wait();
          CHECK(view.equal(plain));
        }
        view.fill_(7.0);
      }
    }
  }
}

TEST_CASE("communicator: what was shared is forgotten with the tensor") {
  const MpiGroup world = MpiGroup::world();
  const auto group = make(world.duplicate());
  for (int i = 0; i < 3; ++i) {
    const at::Tensor x = shareable_zeros(30000, at::kFloat), y = at::zeros({30000}, at::kFloat);
    x.fill_(world.rank());
    y.fill_(world.rank());
    group->share(i == 1 ? y : x);  // of an ordinary one nothing is
    group->all_reduce(x, ReduceOp::kSum).wait();
    group->all_reduce(y, ReduceOp::kSum).wait();
    const int sum = world.size() * (world.size() - 1) / 2;
    CHECK(x.eq(sum).all().item<bool>());
    CHECK(y.eq(sum).all().item<bool>());
  }
}

// As in a container that sees no other's processes.
TEST_CASE("communicator: what a rank may not map of another goes through slots") {
  const MpiGroup world = MpiGroup::world();
  if (world.size() < 2) return;
  const auto group = make(world.duplicate());
  const at::Tensor x = shareable_zeros(30000, at::kFloat);
  if (world.rank() == 1) {
    const int other = open("/dev/null", O_RDWR | O_CLOEXEC);
    REQUIRE(dup2(other, static_cast<int>(shared_name(x).descriptor)) >= 0);
    close(other);
  }
  group->share(x);
  x.fill_(world.rank());
  group->all_reduce(x, ReduceOp::kSum).wait();
  CHECK(x.eq(world.size() * (world.size() - 1) / 2).all().item<bool>());
  if (world.rank() == 0) CHECK(unshared()->message().find("cannot be mapped") != std::string::npos);
}

TEST_CASE("communicator: all paths give the same bits") {
  const MpiGroup world = MpiGroup::world();
  std::vector<at::Tensor> results;
  for (const auto& options : {path(HostPath::kMessages), small_pieces(HostPath::kMessages), path(HostPath::kAuto),
                              small_pieces(HostPath::kAuto)}) {
    at::Tensor x = at::full({30011}, 0.1 * (world.rank() + 1), at::kFloat);
    x.mul_(at::full({30011}, 1.0 / 3.0, at::kFloat));
    make(world.duplicate(), options)->all_reduce(x, ReduceOp::kSum).wait();
    results.push_back(x);
  }
  for (const at::Tensor& result : results)
    CHECK(result.equal(results[0]));
}

TEST_CASE("communicator: an exchange whose sizes differ is refused by its receiver") {
  const MpiGroup world = MpiGroup::world();
  if (world.size() < 2) return;
  const auto group = make(world.duplicate());
  for (const int64_t sent : {int64_t{10}, int64_t{30}}) {
    if (group->rank() == 0) {
      group->exchange({{Direction::kSend, at::zeros({sent}, at::kFloat), 1}}).wait();
    } else if (group->rank() == 1) {
      const std::string text = sent == 10 ? "rank 0 sent 40 bytes where 80 are received"
                                          : "rank 0 sent more than the 80 bytes that are received";
      CHECK_THROWS_WITH_AS(group->exchange({{Direction::kReceive, at::zeros({20}, at::kFloat), 0}}).wait(),
                           doctest::Contains(text.c_str()), Error);
    }
  }
}

TEST_CASE("communicator: ranks in different operations are told apart") {
  const MpiGroup world = MpiGroup::world();
  if (world.size() < 2) return;
  const auto group = make(world.duplicate(), path(HostPath::kSharedMemory));
  const at::Tensor x = at::zeros({4}, at::kFloat);
  group->barrier().wait();
  try {
    comm::Work work = group->rank() == 0 ? group->broadcast(x, 0) : group->all_reduce(x, ReduceOp::kMax);
    work.wait();
    FAIL_CHECK("not noticed");
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::kInternal);
    const std::string text = error.message();
    CHECK_MESSAGE(text.find("number 2 on axis 'test', 16 bytes: rank ") != std::string::npos, text);
    CHECK_MESSAGE(text.find("broadcast of 16 bytes") != std::string::npos, text);
    CHECK_MESSAGE(text.find("all_reduce of 16 bytes") != std::string::npos, text);
  }
}

// On a busy machine a rank may come late by itself: what is said of times holds in every order of events, or is tried
// again.
TEST_CASE("communicator: time spent in wait() is counted on the axis") {
  const MpiGroup world = MpiGroup::world();
  if (world.size() < 2) return;
  const auto group = make(world.duplicate());
  bool counted = false;
  for (int i = 0; i < 50 && !counted; ++i) {
    group->barrier().wait();
    const double before = testing::statistics_of("test").blocked_seconds;
    if (group->rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const Timer timer;
    group->barrier().wait();
    const double elapsed = timer.seconds();
    const double blocked = testing::statistics_of("test").blocked_seconds - before;
    CHECK(blocked <= elapsed);
    counted = world.max(group->rank() == 1 && blocked > 0.05 ? 1 : 0) == 1;
  }
  CHECK(counted);
}

TEST_CASE("communicator: an operation that is in flight while its rank is not blocked is hidden, and waiting is not") {
  const MpiGroup world = MpiGroup::world();
  if (world.size() < 2) return;
  for (const HostPath host_path : {HostPath::kMessages, HostPath::kSharedMemory}) {
    const auto group = comm::make_communicator("hidden", world.duplicate(), at::kCPU, nullptr, path(host_path));
    const at::Tensor x = at::zeros({1 << 20}, at::kFloat), y = at::zeros({1 << 20}, at::kFloat);
    group->barrier().wait();
    const auto before = testing::statistics_of("hidden");
    double computing = 0.0;
    const Timer timer;
    if (group->rank() > 0) world.barrier();  // until rank 0 has computed: two operations are in flight all the while
    comm::Work first = group->all_reduce(x, ReduceOp::kSum), second = group->all_reduce(y, ReduceOp::kSum);
    if (group->rank() == 0) {
      const ScopedTimer computes(computing);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    if (group->rank() == 0) world.barrier();
    first.wait();
    second.wait();
    const double elapsed = timer.seconds();
    const auto after = testing::statistics_of("hidden");
    const double hidden = after.hidden_seconds - before.hidden_seconds;
    const double blocked = after.blocked_seconds - before.blocked_seconds;
    CHECK(hidden >= computing);
    CHECK(hidden + blocked <= elapsed);  // of two at a time once, and never both

    const Timer waiting_timer;
    if (group->rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    group->all_reduce(x, ReduceOp::kSum).wait();
    const double waited = waiting_timer.seconds();
    const auto last = testing::statistics_of("hidden");
    CHECK(last.hidden_seconds - after.hidden_seconds + last.blocked_seconds - after.blocked_seconds <= waited);
  }
}

// Computes until the thread has ended so many operations; not for ever.
void compute_until(const comm::MessageThread& thread, int completed) {
  const LongWork outer;
  const LongWork inner;  // the turn goes over once
  for (int i = 0; i < 60'000 && thread.completed() < completed; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST_CASE("message thread: operations come to their end while the main thread computes, with the same bits") {
  const MpiGroup world = MpiGroup::world();
  if (world.size() == 1) return;
  for (const HostPath host_path : {HostPath::kMessages, HostPath::kSharedMemory}) {
    const auto group = make(world.duplicate(), small_pieces(host_path));
    const auto numbers = [&] {
      return at::arange(40'000, at::kFloat).mul_(0.1F * static_cast<float>(group->rank() + 1));
    };
    const at::Tensor wanted = numbers(), first = numbers(), second = numbers();
    group->all_reduce(wanted, ReduceOp::kSum).wait();
    const comm::MessageThread thread;
    comm::Work first_work = group->all_reduce(first, ReduceOp::kSum);
    comm::Work second_work = group->all_reduce(second, ReduceOp::kSum);
    compute_until(thread, 2);
    CHECK(thread.completed() == 2);
    first_work.wait();
    second_work.wait();
    CHECK(first.equal(wanted));
    CHECK(second.equal(wanted));
  }
}

TEST_CASE("message thread: what an operation throws comes out where the main thread waits next") {
  const MpiGroup world = MpiGroup::world();
  if (world.size() < 2) return;
  const auto group = make(world.duplicate()), other = make(world.duplicate());
  const comm::MessageThread thread;
  const at::Tensor go = at::zeros({1}, at::kFloat);
  if (group->rank() == 0) {
    other->exchange({{Direction::kReceive, go, 1}}).wait();
    group->exchange({{Direction::kSend, at::zeros({10}, at::kFloat), 1}}).wait();
  } else if (group->rank() == 1) {
    comm::Work work = group->exchange({{Direction::kReceive, at::zeros({20}, at::kFloat), 0}});
    other->exchange({{Direction::kSend, go, 0}}).wait();
    compute_until(thread, 1);
    CHECK(thread.completed() == 1);
    CHECK_THROWS_WITH_AS(work.wait(), doctest::Contains("rank 0 sent 40 bytes where 80 are received"), Error);
  }
}

TEST_CASE("communicator: a CUDA device is refused without CUDA") {
  if (!comm::nccl_version().empty()) return;
  CHECK_THROWS_WITH_AS(comm::make_communicator("data", MpiGroup::world(), c10::Device(at::kCUDA, 0)),
                       doctest::Contains("this program was built without CUDA and cannot use cuda:0"), Error);
}

}  // namespace vit_hybrid::testing
