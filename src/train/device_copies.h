// DeviceCopies: the batches of a loader on the rank's device, each copied while the one before it is computed on.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <optional>

#include "data/prefetch_loader.h"

namespace vit_hybrid::train {

/// On a GPU, batches travel on a stream of their own, one ahead of the step; they cross the bus as the data set gives
/// them. On the host they stay where they are. Used by the main thread.
class DeviceCopies {
 public:
  /// `loader` outlives it.
  DeviceCopies(data::PrefetchLoader& loader, c10::Device device);
  ~DeviceCopies();
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  /// The next batch, as PrefetchLoader::next() gives it: later work on the current stream sees its values. Starts the
  /// copy of the one after it, if that has been read.
  std::optional<data::Batch> next();

 private:
  class Stream;

  data::PrefetchLoader& loader_;
  std::unique_ptr<Stream> stream_;  // null on the host
};

}  // namespace vit_hybrid::train
