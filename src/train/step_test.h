// StepTest: measures the steps of a test run on one rank, and gathers those of all.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/device/energy_meter.h"
#include "src/base/timer.h"
#include "src/report/run_log.h"
#include "src/report/test_figures.h"

namespace vit_hybrid::train {

/// Fed with every step of a run; the first few do not count.
class StepTest {
 public:
  /// `steps` of the run; energy is that of this rank's GPU and, on one rank a node, of the node's processors.
  StepTest(int64_t steps, c10::Device device, bool meters_node);

  int64_t steps() const { return steps_; }
  void add(const StepRecord& step);
  /// Of all ranks, on every rank; nothing where the run ended before a step counted. Collective over `world`.
  std::optional<TestFigures> figures(const comm::MpiGroup& world) const;

 private:
  // Of one kind on this rank.
  struct Metered {
    bool is_metered = false;
    Energy energy;
  };

  void begin_metering();
  void read_meters();
  Power power(const Metered& own, const comm::MpiGroup& world) const;
  std::vector<std::vector<StepSeconds>> gathered_seconds(const comm::MpiGroup& world) const;

  int64_t steps_;
  int64_t warm_up_;
  c10::Device device_;
  bool meters_node_;
  int64_t num_done_ = 0;
  std::vector<StepSeconds> seconds_;  // of the steps that count
  std::vector<double> samples_;
  std::optional<PackageEnergyMeter> package_meter_;
  std::optional<GpuEnergyMeter> gpu_meter_;
  Metered packages_;
  Metered gpu_;
  Timer since_metering_;
  double metered_seconds_ = 0.0;
};

}  // namespace vit_hybrid::train
