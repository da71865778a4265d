// Streams and events of CUDA.
#include "parallel/comm/nccl/device_stream.h"

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

namespace vit_hybrid::comm {

namespace {

c10::cuda::CUDAStream cuda(const DeviceStream& stream) {
  return c10::cuda::CUDAStream(stream.get());
}

}  // namespace

DeviceStream DeviceStream::of_pool(c10::Device device) {
  return DeviceStream(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index()));
}

DeviceStream DeviceStream::of_caller(c10::Device device) {
  return DeviceStream(c10::cuda::getCurrentCUDAStream(device.index()));
}

CUstream_st* DeviceStream::handle() const {
  return cuda(*this).stream();
}

bool DeviceStream::is_capturing() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(cuda(*this).stream(), &status) != cudaSuccess || status != cudaStreamCaptureStatusNone;
}

void DeviceStream::synchronize() const {
  cuda(*this).synchronize();
}

struct DeviceEvent::Impl {
  at::cuda::CUDAEvent event;
};

DeviceEvent::DeviceEvent(Timing timing)
    : impl_(new Impl{at::cuda::CUDAEvent(timing == Timing::kOn ? cudaEventDefault : cudaEventDisableTiming)}) {}

DeviceEvent::~DeviceEvent() = default;

void DeviceEvent::record(const DeviceStream& stream) {
  impl_->event.record(cuda(stream));
}

void DeviceEvent::block(const DeviceStream& stream) const {
  impl_->event.block(cuda(stream));
}

bool DeviceEvent::query() const {
  return impl_->event.query();
}

DeviceStatus DeviceEvent::status(c10::Device device) const {
  // Not CUDAEvent::query(), which throws. Nor without the device: a thread begins with GPU 0, and the query would make
  // a context there.
  cudaSetDevice(device.index());
  const cudaError_t state = cudaEventQuery(impl_->event.event());
  if (state == cudaSuccess) return {DeviceStatus::Kind::kComplete, {}};
  if (state == cudaErrorNotReady) return {DeviceStatus::Kind::kRunning, {}};
  return {DeviceStatus::Kind::kFailed, cudaGetErrorString(state)};
}

double DeviceEvent::seconds_until(const DeviceEvent& later) const {
  return impl_->event.elapsed_time(later.impl_->event) * 1e-3;
}

}  // namespace vit_hybrid::comm
