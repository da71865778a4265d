// own_gpu(): by choose_device(), with as many ranks a GPU as it takes.
#include "tests/support/gpu/own_gpu.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "parallel/comm/failure.h"
#include "src/machine/device.h"
#include "tests/support/mpi_test.h"

namespace vit_hybrid::testing {

namespace {

int ranks_per_gpu() {
  const int num_gpus = static_cast<int>(at::detail::getCUDAHooks().deviceCount());
  return (world_size() + num_gpus - 1) / num_gpus;
}

}  // namespace

c10::Device own_gpu() {
  static const c10::Device device = [] {
    comm::set_process_place({world_rank(), world_size(), 0, 1, world_rank(), world_size(), "here"});
    return train::choose_device(train::DeviceChoice::kCuda, ranks_per_gpu(), train::Precision::kFp32,
                                comm::MpiGroup::world());
  }();
  return device;
}

comm::TransportOptions gpu_transport() {
  train::ParallelConfig parallel;
  parallel.ranks_per_gpu = ranks_per_gpu();
  return train::transport_options(parallel);
}

int64_t device_allocations() {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(own_gpu().index()).num_device_alloc;
}

}  // namespace vit_hybrid::testing
