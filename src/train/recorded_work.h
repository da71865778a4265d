// RecordedWork: a piece of the training step as a device graph, so that the host starts one thing instead of several.
#pragma once

#include <functional>
#include <memory>

#include "src/base/device/device_graph.h"

namespace vit_hybrid::train {

/// The same work each time but for the numbers in the tensors that it reads.
class RecordedWork {
 public:
  /// `recorder`: null where it is never recorded.
  explicit RecordedWork(std::shared_ptr<DeviceRecorder> recorder);
  RecordedWork(const RecordedWork&) = delete;
  RecordedWork& operator=(const RecordedWork&) = delete;

  /// Does `work`: the first time as it is, the second time recorded, and from then on what was recorded: of `work` then
  /// the device's part alone.
  void run(const std::function<void()>& work);

 private:
  std::shared_ptr<DeviceRecorder> recorder_;
  std::unique_ptr<DeviceGraph> graph_;  // null: not recorded yet
  bool was_done_ = false;
};

}  // namespace vit_hybrid::train
