// Device graphs by LibTorch's CUDAGraph, which has the allocators keep the recorded addresses.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>
#include <torch/version.h>

#include <exception>
#include <utility>

#include "src/base/device/device_graph.h"
#include "src/base/error.h"

namespace vit_hybrid {

namespace {

using PoolId = decltype(at::cuda::graph_pool_handle());  // its name changed between versions of LibTorch

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 8
#define VH_HAS_HOST_POOLS 0
#else
#define VH_HAS_HOST_POOLS 1
#endif

// A CUDAGraph that can tell whether it will release its pool: what it began and could not end it leaves as it is.
struct Capture : at::cuda::CUDAGraph {
#if VH_HAS_HOST_POOLS
  bool has_ended() const {
    return capture_ended_;
  }
#else
  bool has_ended() const {
    return has_graph_ || has_graph_exec_;
  }
#endif

  // The generators believe in a recording until it has ended well, and refuse all draws outside of one.
  void release_generators() {
    for (const auto& [state, increment] : captured_generator_states_) {
      state->capturing_ = false;
    }
  }
};

class RecordedGraph final : public DeviceGraph {
 public:
  explicit RecordedGraph(std::shared_ptr<const PoolId> pool) : pool_(std::move(pool)) {}

  // The device may still be at a replay.
  ~RecordedGraph() override { static_cast<void>(cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream())); }
  RecordedGraph(const RecordedGraph&) = delete;
  RecordedGraph& operator=(const RecordedGraph&) = delete;

  // Other threads (the loader's, MPI's) go on calling CUDA meanwhile: only this one is bound by the rules of recording.
  void record(const std::function<void()>& work) {
    try {
      graph_.capture_begin(*pool_, cudaStreamCaptureModeThreadLocal);
      work();
      graph_.capture_end();
    } catch (...) {
      end_failed();
      throw;
    }
  }

  void replay() override { graph_.replay(); }

 private:
  // The stream is free again after it, and new tensors lie outside the pool. The error that brought us here says more
  // than those of an unfinished recording.
  void end_failed() {
    if (graph_.has_ended()) {
      return;  // what failed came after the recording; the graph releases its pool
    }
    const auto quietly = [](auto&& work) {
      try {
        work();
      } catch (const std::exception&) {
      }
    };
    quietly([&] { graph_.capture_end(); });
    graph_.release_generators();
    if (graph_.has_ended()) {
      return;
    }
    const c10::DeviceIndex device = c10::cuda::current_device();
    quietly([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(device, *pool_); });
    quietly([&] { c10::cuda::CUDACachingAllocator::releasePool(device, *pool_); });
#if VH_HAS_HOST_POOLS
    auto& host = *at::getHostAllocator(at::kCUDA);
    quietly([&] { host.end_allocate_to_pool(*pool_); });
    quietly([&] { host.release_pool(*pool_); });
#endif
  }

  std::shared_ptr<const PoolId> pool_;
  Capture graph_;
};

class CudaRecorder final : public DeviceRecorder {
 public:
  using DeviceRecorder::DeviceRecorder;

  void make_room() override { c10::cuda::CUDACachingAllocator::emptyCache(); }

 private:
  std::unique_ptr<DeviceGraph> try_to_record(const std::function<void()>& work) override {
    const auto stream = c10::cuda::getCurrentCUDAStream();
    VH_ASSERT(stream != c10::cuda::getDefaultCUDAStream(), "work on a GPU's default stream cannot be recorded");
    auto graph = std::make_unique<RecordedGraph>(pool());
    graph->record(work);
    return graph;
  }

  // LibTorch gives a pool up with its last graph, and does not take it up again.
  std::shared_ptr<const PoolId> pool() {
    auto pool = pool_.lock();
    if (pool == nullptr) {
      pool = std::make_shared<const PoolId>(at::cuda::graph_pool_handle());
      pool_ = pool;
    }
    return pool;
  }

  std::weak_ptr<const PoolId> pool_;
};

}  // namespace

std::unique_ptr<DeviceRecorder> make_device_recorder(Unrecordable unrecordable,
                                                     std::shared_ptr<RecordingWarning> warning) {
  return std::make_unique<CudaRecorder>(unrecordable, std::move(warning));
}

}  // namespace vit_hybrid
