// DeviceCopies: the batches of a loader on the rank's device, each copied while the one before it is computed on.
//
// A GPU's batches stay as they are stored until they are there (ValueForm): fp32 fields, and images as bytes, a quarter
// of their floats, from page-locked memory on a stream of its own. VitProgram normalizes them on the device, straight
// into the type of the activations, with the bits that the reading threads give on a CPU (normalize.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <optional>

#include "data/loading/prefetch_loader.h"

namespace vit_hybrid::data {

/// `tensor` as `type` on the device; from page-locked memory the copy is started, and the host goes on.
at::Tensor to_device(const at::Tensor& tensor, c10::Device device, at::ScalarType type);

/// On a GPU, batches travel on a stream of their own, one ahead of the step; they cross the bus as the data set gives
/// them. On the host they stay where they are. Used by the main thread.
class DeviceCopies {
 public:
  /// `loader` outlives it.
  DeviceCopies(PrefetchLoader& loader, c10::Device device);
  ~DeviceCopies();
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  /// The next batch, as PrefetchLoader::next() gives it: later work on the current stream sees its values. Starts the
  /// copy of the one after it, if that has been read.
  std::optional<Batch> next();

 private:
  class Stream;

  PrefetchLoader& loader_;
  std::unique_ptr<Stream> stream_;  // null on the host
};

}  // namespace vit_hybrid::data
