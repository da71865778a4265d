// Device and threads of a rank: what the machine offers.
#include "src/train/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

// Zero in a program without CUDA and on a node without GPUs.
int num_gpus() {
  return at::hasCUDA() ? static_cast<int>(at::detail::getCUDAHooks().deviceCount()) : 0;
}

// Cores that this process may run on: what the launcher bound it to.
int num_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

c10::Device device_for(DeviceChoice choice, const comm::ProcessPlace& place) {
  if (choice == DeviceChoice::kCpu) {
    return c10::Device(c10::kCPU);
  }
  const int gpus = num_gpus();
  if (gpus >= place.node_size) {
    return {c10::kCUDA, static_cast<c10::DeviceIndex>(place.node_rank)};
  }
  if (choice == DeviceChoice::kCuda) {
    throw Error(ErrorClass::kUsage,
                str("--device cuda: ", place.host, " has ", gpus, " GPUs that this program can use for ",
                    place.node_size, " ranks"),
                "start one rank a GPU, use a program built with VIT_HYBRID_ENABLE_CUDA=ON, or give --device cpu");
  }
  return c10::Device(c10::kCPU);
}

}  // namespace

c10::Device choose_device(const RunConfig& config, const comm::ProcessPlace& place) {
  const c10::Device device = device_for(config.device, place);
  static_cast<void>(batch_memory(config.data.pin_memory, device));
  return device;
}

data::HostMemory batch_memory(PinMemory choice, c10::Device device) {
  if (choice == PinMemory::kOn && !device.is_cuda()) {
    throw Error(ErrorClass::kUsage,
                str("--pin-memory on: the device is ", device.str(),
                    ", and page-locked batches are for copies to a GPU, of which there are none"),
                "give --pin-memory auto, which page-locks them where there is a GPU, or off");
  }
  const bool pins = choice != PinMemory::kOff && device.is_cuda();
  return pins ? data::HostMemory::kPinned : data::HostMemory::kPageable;
}

// The tensor may be given up while the copy is under way: see TensorPool::take().
at::Tensor to_device(const at::Tensor& tensor, c10::Device device, at::ScalarType type) {
  const bool non_blocking = device.is_cuda() && tensor.is_cpu() && tensor.is_pinned();
  return tensor.to(device, type, non_blocking);
}

void set_threads(int threads, const comm::ProcessPlace& place) {
  if (threads == 0 && std::getenv("OMP_NUM_THREADS") == nullptr) {
    // A launcher that binds gives each rank its own cores; one that does not gives all of them to everybody.
    const int cores = num_cores();
    const int node_cores = std::max(cores, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
    threads = cores < node_cores ? cores : std::max(1, cores / place.node_size);
  }
  if (threads > 0) {
    at::set_num_threads(threads);
  }
}

}  // namespace vit_hybrid::train
