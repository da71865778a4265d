// Device graphs by LibTorch's CUDAGraph, which has the allocator keep the recorded addresses.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <exception>
#include <utility>

#include "src/base/device/device_graph.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid {

namespace {

using PoolId = decltype(at::cuda::graph_pool_handle());  // its name changed between versions of LibTorch

class RecordedGraph final : public DeviceGraph {
 public:
  explicit RecordedGraph(std::shared_ptr<const PoolId> pool) : pool_(std::move(pool)) {}

  // The device may still be at a replay.
  ~RecordedGraph() override { static_cast<void>(cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream())); }
  RecordedGraph(const RecordedGraph&) = delete;
  RecordedGraph& operator=(const RecordedGraph&) = delete;

  // Other threads (the loader's, MPI's) go on calling CUDA meanwhile: only this one is bound by the rules of recording.
  void record(const std::function<void()>& work) {
    graph_.capture_begin(*pool_, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      end_failed();
      throw;
    }
    graph_.capture_end();
  }

  void replay() override { graph_.replay(); }

 private:
  // The stream is free again after it; the error that brought us here says more than that of an unfinished recording.
  void end_failed() {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
    }
  }

  std::shared_ptr<const PoolId> pool_;
  at::cuda::CUDAGraph graph_;
};

class CudaRecorder final : public DeviceRecorder {
 public:
  void make_room() override { c10::cuda::CUDACachingAllocator::emptyCache(); }

  std::unique_ptr<DeviceGraph> record(const std::function<void()>& work) override {
    const auto stream = c10::cuda::getCurrentCUDAStream();
    VH_ASSERT(stream != c10::cuda::getDefaultCUDAStream(), "work on a GPU's default stream cannot be recorded");
    auto graph = std::make_unique<RecordedGraph>(pool());
    try {
      graph->record(work);
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const c10::Error& error) {
      const std::string text = error.what_without_backtrace();
      throw Error(ErrorClass::kInternal,
                  str("the step could not be recorded as a CUDA graph: ", text.substr(0, text.find('\n'))),
                  "--cuda-graph off trains without");
    }
    return graph;
  }

 private:
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

std::unique_ptr<DeviceRecorder> make_device_recorder() {
  return std::make_unique<CudaRecorder>();
}

}  // namespace vit_hybrid
