// Properties of GPUs, asked of CUDA and its libraries, and times by their events.
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cublasLt.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "src/base/error.h"
#include "src/kernels/gemm/device_kernels.h"

namespace vit_hybrid::kernels {

namespace {

// How long the calls of a round are to take, at most how many they are, and how many rounds there are.
struct Rounds {
  double microseconds;
  int most_calls;
  int count;
};
constexpr Rounds kBriefRounds = {200.0, 20, 1};
constexpr Rounds kFullRounds = {1500.0, 200, 3};

DeviceTraits read_traits(c10::Device device) {
  const cudaDeviceProp& properties = *at::cuda::getDeviceProperties(device.index());
  DeviceTraits traits;
  traits.name = properties.name;
  traits.capability = properties.major * 10 + properties.minor;
  traits.multiprocessors = properties.multiProcessorCount;
  traits.cublaslt_version = static_cast<int64_t>(cublasLtGetVersion());
  traits.cudnn_version = at::detail::getCUDAHooks().hasCuDNN() ? at::detail::getCUDAHooks().versionCuDNN() : 0;
  return traits;
}

// Microseconds of one of `repeats` calls.
double measure(const std::function<void()>& work, int repeats) {
  at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
  begin.record();
  for (int i = 0; i < repeats; ++i) {
    work();
  }
  end.record();
  end.synchronize();
  return 1e3 * static_cast<double>(begin.elapsed_time(end)) / repeats;
}

}  // namespace

const DeviceTraits& device_traits(c10::Device device) {
  VH_ASSERT(device.is_cuda(), device.str());
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, DeviceTraits> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(device.index());
  return found != known.end() ? found->second : known.emplace(device.index(), read_traits(device)).first->second;
}

double device_microseconds(const std::function<void()>& work, Effort effort) {
  const Rounds& rounds = effort == Effort::kBrief ? kBriefRounds : kFullRounds;
  work();  // what is made at first use: kernels are loaded, plans built, memory allocated
  const double once = std::max(measure(work, 2), 0.1);
  const int repeats = std::clamp(static_cast<int>(rounds.microseconds / once), 1, rounds.most_calls);
  double least = once;
  // One call more would say nothing that the two before did not.
  const bool is_known = effort == Effort::kBrief && repeats <= 2;
  for (int round = 0; round < rounds.count && !is_known; ++round) {
    least = std::min(least, measure(work, repeats));
  }
  return least;
}

void synchronize_device() {
  c10::cuda::device_synchronize();
}

void release_unused_device_memory() {
  c10::cuda::CUDACachingAllocator::emptyCache();
  c10::cuda::CUDACachingAllocator::resetPeakStats(c10::cuda::current_device());
}

}  // namespace vit_hybrid::kernels
