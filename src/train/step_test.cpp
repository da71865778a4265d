// StepTest: what is kept of each step, and the gathering.
#include "src/train/step_test.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "src/base/device/device_memory.h"
#include "src/base/memory_tracker.h"
#include "src/report/run_speed.h"

namespace vit_hybrid::train {

StepTest::StepTest(int64_t steps, c10::Device device, bool meters_node)
    : steps_(steps), warm_up_(warm_up_steps(steps)), device_(device), meters_node_(meters_node) {
  if (warm_up_ == 0) {
    begin_metering();
  }
}

void StepTest::begin_metering() {
  if (meters_node_) {
    package_meter_.emplace();
  }
  gpu_meter_.emplace(device_pci_address(device_));
  since_metering_.restart();
}

void StepTest::read_meters() {
  if (package_meter_) {
    packages_ = {true, package_meter_->read()};
  }
  gpu_ = {true, gpu_meter_->read()};
  metered_seconds_ = since_metering_.seconds();
}

void StepTest::add(const StepRecord& step) {
  ++num_done_;
  if (num_done_ == warm_up_) {
    begin_metering();
  } else if (num_done_ > warm_up_) {
    seconds_.push_back(step.seconds);
    samples_.push_back(static_cast<double>(step.samples));
    read_meters();
  }
}

std::vector<std::vector<StepSeconds>> StepTest::gathered_seconds(comm::Communicator& host_world) const {
  std::vector<double> own;
  for (const StepSeconds& seconds : seconds_) {
    for (const auto& [name, part] : kStepParts) {
      own.push_back(seconds.*part);
    }
  }
  const at::Tensor all = at::empty({host_world.size() * static_cast<int64_t>(own.size())}, at::kDouble);
  host_world.all_gather(all, at::tensor(own, at::kDouble)).wait();
  const double* value = all.const_data_ptr<double>();
  std::vector<std::vector<StepSeconds>> by_rank(static_cast<size_t>(host_world.size()),
                                                std::vector<StepSeconds>(seconds_.size()));
  for (auto& steps : by_rank) {
    for (StepSeconds& seconds : steps) {
      for (const auto& [name, part] : kStepParts) {
        seconds.*part = *value++;
      }
    }
  }
  return by_rank;
}

Power StepTest::power(const Metered& own, comm::Communicator& host_world) const {
  const bool is_known = own.energy.joules.has_value();
  // Joules, meters, and meters that can be read.
  const at::Tensor sums =
      at::tensor({own.energy.joules.value_or(0.0), own.is_metered ? 1.0 : 0.0, is_known ? 1.0 : 0.0}, at::kDouble);
  host_world.all_reduce(sums, comm::ReduceOp::kSum).wait();
  const double* values = sums.const_data_ptr<double>();
  if (values[2] == values[1] && metered_seconds_ > 0.0) {
    return {values[0] / metered_seconds_, {}};
  }
  return {std::nullopt, is_known ? "it cannot be read on every node" : own.energy.missing};
}

std::optional<TestFigures> StepTest::figures(comm::Communicator& host_world) const {
  if (seconds_.empty()) {
    return std::nullopt;  // all ranks have done the same steps
  }
  const MemoryScope scope(MemoryClass::kCommunication);
  TestFigures figures = test_figures(gathered_seconds(host_world), samples_);
  figures.warm_up = warm_up_;
  figures.packages = power(packages_, host_world);
  figures.gpus = power(gpu_, host_world);
  return figures;
}

}  // namespace vit_hybrid::train
