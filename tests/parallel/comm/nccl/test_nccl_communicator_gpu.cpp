// The NCCL back end: the conformance suite on the world and on parts split off it, and a mesh of devices.
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/base/error.h"
#include "tests/support/communicator_suite.h"
#include "tests/support/gpu/own_gpu.h"
#include "tests/support/mpi_test.h"

namespace vit_hybrid::testing {

using comm::Communicator;
using comm::MpiGroup;
using comm::ReduceOp;
using comm::Transfer;

TEST_CASE("nccl: conformance on the world and on parts of it") {
  const c10::Device device = own_gpu();
  const MpiGroup processes = MpiGroup::world();
  const auto world = comm::make_communicator("world", processes.duplicate(), device, nullptr, gpu_transport());
  CHECK(world->back_end() == (world->size() == 1 ? "self" : "nccl " + comm::nccl_version()));
  check_communicator(*world, device, {});
  for (const int color : {processes.rank() % 2, processes.rank() == processes.size() - 1 ? 1 : 0}) {
    const auto part = comm::make_communicator("test", processes.split(color), device, world.get(), gpu_transport());
    check_communicator(*part, device, {});
  }
}

// The groups' kernels wait for each other on the GPU, and their memory is that of all of them.
TEST_CASE("nccl: where ranks share a GPU, groups are connected by the smallest operations") {
  own_gpu();
  const bool is_shared = world_size() > at::detail::getCUDAHooks().deviceCount();
  CHECK(gpu_transport().warm_up_bytes == (is_shared ? 0 : comm::TransportOptions().warm_up_bytes));
}

TEST_CASE("nccl: sums are those of the host") {
  const c10::Device device = own_gpu();
  const MpiGroup processes = MpiGroup::world();
  const auto on_device = comm::make_communicator("test", processes.duplicate(), device, nullptr, gpu_transport());
  const auto on_host = comm::make_communicator("test", processes.duplicate(), at::kCPU);
  at::Tensor x = at::full({100003}, 1.0 / (3.0 + processes.rank()), at::kDouble);
  const at::Tensor y = x.to(device);
  on_host->all_reduce(x, ReduceOp::kSum).wait();
  on_device->all_reduce(y, ReduceOp::kSum).wait();
  CHECK(y.cpu().sub(x).abs().max().item<double>() <= 1e-15 * processes.size());
}

// What a pipeline of half precision sends: more than one message of a pair at once, in both directions.
TEST_CASE("nccl: half types are exchanged around a ring") {
  const c10::Device device = own_gpu();
  const auto group = comm::make_communicator("test", MpiGroup::world(), device, nullptr, gpu_transport());
  const int size = group->size();
  const int next = (group->rank() + 1) % size;
  const int previous = (group->rank() + size - 1) % size;
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const auto options = at::TensorOptions(type).device(device);
    const at::Tensor ahead = at::full({4099}, group->rank() + 0.5, options);
    const at::Tensor back = at::full({257}, group->rank() + 100.0, options);
    const at::Tensor from_previous = at::empty({4099}, options);
    const at::Tensor from_next = at::empty({257}, options);
    using Direction = Transfer::Direction;
    if (size <= 2) {  // then both messages of a direction have the same peer: in the order of the list
      group
          ->exchange({{Direction::kSend, ahead, next},
                      {Direction::kSend, back, next},
                      {Direction::kReceive, from_previous, next},
                      {Direction::kReceive, from_next, next}})
          .wait();
    } else {
      group
          ->exchange({{Direction::kReceive, from_previous, previous},
                      {Direction::kSend, back, previous},
                      {Direction::kSend, ahead, next},
                      {Direction::kReceive, from_next, next}})
          .wait();
    }
    CHECK(from_previous.eq(previous + 0.5).all().item<bool>());
    CHECK(from_next.eq(next + 100.0).all().item<bool>());
  }
}

TEST_CASE("nccl: many operations in flight at once, each waited for out of order") {
  const c10::Device device = own_gpu();
  const auto group = comm::make_communicator("test", MpiGroup::world(), device, nullptr, gpu_transport());
  std::vector<at::Tensor> tensors;
  for (int round = 0; round < 3; ++round) {  // the later ones with the events of the first
    std::vector<comm::Work> works;
    tensors.clear();
    for (int i = 0; i < 50; ++i) {
      tensors.push_back(at::full({1 << 12}, i + 1.0, at::TensorOptions(at::kFloat).device(device)));
      works.push_back(group->all_reduce(tensors.back(), ReduceOp::kSum));
    }
    for (size_t i = 0; i < works.size(); ++i) {
      works[(i * 7) % works.size()].wait();
    }
    for (int i = 0; i < 50; ++i) {
      CHECK(tensors[static_cast<size_t>(i)].eq((i + 1.0) * group->size()).all().item<bool>());
    }
  }
}

TEST_CASE("nccl: later work on the caller's stream sees the result without a wait of the host") {
  const c10::Device device = own_gpu();
  const auto group = comm::make_communicator("test", MpiGroup::world(), device, nullptr, gpu_transport());
  const auto options = at::TensorOptions(at::kFloat).device(device);
  at::Tensor x = at::full({1 << 22}, 1.0, options);
  for (int i = 0; i < 10; ++i) {
    x = x.add(1.0);  // in flight when the all-reduce is started
    group->all_reduce(x, ReduceOp::kMax).wait();
    x = x.mul(1.0);
  }
  CHECK(x.eq(11.0).all().item<bool>());
}

TEST_CASE("nccl: host tensors are refused") {
  const c10::Device device = own_gpu();
  const auto group = comm::make_communicator("test", MpiGroup::world(), device, nullptr, gpu_transport());
  CHECK_THROWS_WITH_AS(group->all_reduce(at::full({2}, 1.0, at::kFloat), ReduceOp::kSum).wait(),
                       "all_reduce on axis 'test': the tensor is on cpu, tensors must be on cuda", Error);
}

TEST_CASE("nccl: a mesh of devices, with a world of the hosts") {
  const c10::Device device = own_gpu();
  const MpiGroup processes = MpiGroup::world();
  const int tp = processes.size() % 2 == 0 ? 2 : 1;
  mesh::DeviceMesh mesh(mesh::ParallelDims(processes.size() / tp, tp, 1), processes, device, gpu_transport());
  CHECK(mesh.host_world().device_type() == at::kCPU);
  CHECK(mesh.host_world().size() == processes.size());
  at::Tensor x = at::full({1}, mesh.rank(), at::TensorOptions(at::kLong).device(device));
  mesh.tensor().all_reduce(x, ReduceOp::kSum).wait();
  CHECK(x.item<int64_t>() == (tp == 1 ? mesh.rank() : mesh.rank() / 2 * 4 + 1));
}

}  // namespace vit_hybrid::testing
