// Plainly, recorded, replayed.
#include "src/train/recorded_work.h"

#include <utility>

namespace vit_hybrid::train {

RecordedWork::RecordedWork(std::shared_ptr<DeviceRecorder> recorder) : recorder_(std::move(recorder)) {}

void RecordedWork::run(const std::function<void()>& work) {
  if (recorder_ == nullptr || !was_done_) {
    work();
    was_done_ = true;
    return;
  }
  if (graph_ == nullptr) {
    graph_ = recorder_->record(work);
  }
  graph_->replay();
}

}  // namespace vit_hybrid::train
