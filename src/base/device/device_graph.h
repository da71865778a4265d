// DeviceGraph: the work that host code gives a GPU, recorded once and then started as a whole (a CUDA graph).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace vit_hybrid {

/// A GPU's recorded work: its kernels with the addresses and numbers that they had when they were recorded.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  /// Starts the work on the current stream.
  virtual void replay() = 0;
};

/// What becomes of work that cannot be recorded.
enum class Unrecordable { kRefused, kDonePlainly };

/// Says that steps are not recorded, once for all the recorders that share it.
class RecordingWarning {
 public:
  void give(const std::string& reason);

 private:
  bool was_given_ = false;
};

/// Records graphs, all of which share their memory: what one leaves in tensors that were made while it was recorded
/// holds until another one is replayed. The memory is given back when no graph is left.
class DeviceRecorder {
 public:
  explicit DeviceRecorder(Unrecordable unrecordable,
                          std::shared_ptr<RecordingWarning> warning = std::make_shared<RecordingWarning>())
      : unrecordable_(unrecordable), warning_(std::move(warning)) {}
  virtual ~DeviceRecorder() = default;
  DeviceRecorder(const DeviceRecorder&) = delete;
  DeviceRecorder& operator=(const DeviceRecorder&) = delete;

  /// Gives back the memory that is kept for later and in no use: a graph has its own, and what its work took when it
  /// was done before would be held beside that. To be called before work is recorded that makes large tensors.
  virtual void make_room() = 0;
  /// What `work` starts on the current stream, which must not be the default one, and what autograd starts on it from
  /// other threads. The host's part of `work` is done now, the device's at each replay. `work` must neither wait for
  /// the device nor copy from pageable memory, and must have been done once before, so that all that is made at first
  /// use is there. Where it cannot be recorded, whatever it throws, the device has done nothing: Error(kInternal), or
  /// where memory is missing that exception; with kDonePlainly null, first after a warning and from then on at once,
  /// and `work` is to be done as it is.
  std::unique_ptr<DeviceGraph> record(const std::function<void()>& work);

 private:
  /// record() for the first time and as long as it succeeds; throws where the work cannot be recorded.
  virtual std::unique_ptr<DeviceGraph> try_to_record(const std::function<void()>& work) = 0;

  Unrecordable unrecordable_;
  std::shared_ptr<RecordingWarning> warning_;
  bool has_failed_ = false;
};

/// The recorder of a program with CUDA.
std::unique_ptr<DeviceRecorder> make_device_recorder(
    Unrecordable unrecordable, std::shared_ptr<RecordingWarning> warning = std::make_shared<RecordingWarning>());

}  // namespace vit_hybrid
