// HostRecorder: a DeviceRecorder without a device.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "src/base/device/device_graph.h"

namespace vit_hybrid::testing {

/// Does recorded work again at each replay, on what stands in the recorded tensors then. As on a device, recording
/// changes no number of those that it watches, and the operations that a replay starts are not counted as they are
/// begun: whoever replays counts what was recorded (comm::RecordedOperations).
class HostRecorder : public DeviceRecorder {
 public:
  explicit HostRecorder(Unrecordable unrecordable = Unrecordable::kDonePlainly) : DeviceRecorder(unrecordable) {}

  /// All that the recorded work changes.
  void watch(std::vector<at::Tensor> tensors) { tensors_ = std::move(tensors); }

  void make_room() override {}

  int num_recorded() const { return num_recorded_; }
  int num_replayed() const { return num_replayed_; }

 protected:
  /// Records `work` by doing it once; what a replay does.
  virtual std::function<void()> do_once(const std::function<void()>& work);

 private:
  std::unique_ptr<DeviceGraph> try_to_record(const std::function<void()>& work) override;

  class Graph;

  std::vector<at::Tensor> tensors_;
  int num_recorded_ = 0;
  int num_replayed_ = 0;
};

}  // namespace vit_hybrid::testing
