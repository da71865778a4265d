// A recorder of work on the fake device.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "tests/parallel/comm/nccl/fake_device.h"
#include "tests/support/host_recorder.h"

namespace vit_hybrid::testing {

/// The host computes as with every HostRecorder; streams record, and replay what they have recorded.
class FakeRecorder final : public HostRecorder {
 public:
  using HostRecorder::HostRecorder;

  /// Called at the end of the work, in each recording.
  std::function<void()> at_end = [] {};

 private:
  std::function<void()> do_once(const std::function<void()>& work) override {
    begin_recording();
    try {
      work();
      at_end();
      const auto calls = std::make_shared<const RecordedCalls>(end_recording());
      return [work, calls] { replay(*calls, work); };
    } catch (...) {
      give_up_recording();
      throw;
    }
  }
};

}  // namespace vit_hybrid::testing
