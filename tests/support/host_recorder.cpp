// The work is done with gradients and in a scope of operations that are collected for nobody.
#include "tests/support/host_recorder.h"

#include <ATen/core/grad_mode.h>

#include "parallel/comm/recorded_operations.h"

namespace vit_hybrid::testing {

class HostRecorder::Graph final : public DeviceGraph {
 public:
  Graph(std::function<void()> work, int& num_replayed) : work_(std::move(work)), num_replayed_(num_replayed) {}
  void replay() override {
    const at::AutoGradMode grad_mode(true);
    comm::RecordedOperations again;
    again.collect(work_);
    ++num_replayed_;
  }

 private:
  std::function<void()> work_;
  int& num_replayed_;
};

std::function<void()> HostRecorder::do_once(const std::function<void()>& work) {
  work();
  return work;
}

std::unique_ptr<DeviceGraph> HostRecorder::try_to_record(const std::function<void()>& work) {
  std::vector<at::Tensor> before;
  for (const at::Tensor& tensor : tensors_) {
    before.push_back(tensor.clone());
  }
  const auto restore = [&] {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      tensors_[i].copy_(before[i]);
    }
  };
  std::function<void()> again;
  try {
    again = do_once(work);
  } catch (...) {
    restore();
    throw;
  }
  restore();
  ++num_recorded_;
  return std::make_unique<Graph>(std::move(again), num_replayed_);
}

}  // namespace vit_hybrid::testing
