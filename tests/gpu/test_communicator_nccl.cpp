// The NCCL back end: the conformance suite on the world and on parts split off it, and a mesh of devices.
#include <ATen/ops/full.h>
#include <c10/cuda/CUDAFunctions.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/base/error.h"
#include "tests/support/communicator_suite.h"
#include "tests/support/mpi_test.h"

namespace vit_hybrid::testing {

namespace {

using comm::Communicator;
using comm::MpiGroup;
using comm::ReduceOp;

// The device of this rank. NCCL refuses two ranks on one device, unless it takes them for ranks of different hosts.
c10::Device own_device() {
  const int num_devices = c10::cuda::device_count();
  if (world_size() > num_devices) setenv("NCCL_HOSTID", ("rank" + std::to_string(world_rank())).c_str(), 0);
  return {at::kCUDA, static_cast<c10::DeviceIndex>(world_rank() % num_devices)};
}

}  // namespace

TEST_CASE("nccl: conformance on the world and on parts of it") {
  const c10::Device device = own_device();
  const MpiGroup processes = MpiGroup::world();
  const auto world = comm::make_communicator("world", processes.duplicate(), device);
  CHECK(world->back_end() == (world->size() == 1 ? "self" : "nccl " + comm::nccl_version()));
  check_communicator(*world, device, SumOrder::kAny);
  for (const int color : {processes.rank() % 2, processes.rank() == processes.size() - 1 ? 1 : 0}) {
    const auto part = comm::make_communicator("test", processes.split(color), device, world.get());
    check_communicator(*part, device, SumOrder::kAny);
  }
}

TEST_CASE("nccl: sums are those of the host") {
  const c10::Device device = own_device();
  const MpiGroup processes = MpiGroup::world();
  const auto on_device = comm::make_communicator("test", processes.duplicate(), device);
  const auto on_host = comm::make_communicator("test", processes.duplicate(), at::kCPU);
  at::Tensor x = at::full({100003}, 1.0 / (3.0 + processes.rank()), at::kDouble);
  const at::Tensor y = x.to(device);
  on_host->all_reduce(x, ReduceOp::kSum).wait();
  on_device->all_reduce(y, ReduceOp::kSum).wait();
  CHECK(y.cpu().sub(x).abs().max().item<double>() <= 1e-15 * processes.size());
}

TEST_CASE("nccl: later work on the caller's stream sees the result without a wait of the host") {
  const c10::Device device = own_device();
  const auto group = comm::make_communicator("test", MpiGroup::world(), device);
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
  const c10::Device device = own_device();
  const auto group = comm::make_communicator("test", MpiGroup::world(), device);
  CHECK_THROWS_WITH_AS(group->all_reduce(at::full({2}, 1.0, at::kFloat), ReduceOp::kSum).wait(),
                       "all_reduce on axis 'test': the tensor is on cpu, tensors must be on cuda", Error);
}

TEST_CASE("nccl: a mesh of devices, with a world of the hosts") {
  const c10::Device device = own_device();
  const MpiGroup processes = MpiGroup::world();
  const int tp = processes.size() % 2 == 0 ? 2 : 1;
  mesh::DeviceMesh mesh(mesh::ParallelDims::for_ranks(processes.size(), mesh::kAutoDegree, tp, 1), processes, device);
  CHECK(mesh.host_world().device_type() == at::kCPU);
  CHECK(mesh.host_world().size() == processes.size());
  at::Tensor x = at::full({1}, mesh.rank(), at::TensorOptions(at::kLong).device(device));
  mesh.tensor().all_reduce(x, ReduceOp::kSum).wait();
  CHECK(x.item<int64_t>() == (tp == 1 ? mesh.rank() : mesh.rank() / 2 * 4 + 1));
}

}  // namespace vit_hybrid::testing
