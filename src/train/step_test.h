// StepTest: measures the steps of a test run on one rank, and gathers those of all.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/timer.h"
#include "src/report/run_log.h"
#include "src/report/test_figures.h"
#include "src/report/usage_sampler.h"

namespace vit_hybrid::train {

/// Fed with every step of a run; the first few do not count.
class StepTest {
 public:
  /// `steps` of the run; `usage` reads the meters, and outlives the test.
  StepTest(int64_t steps, UsageSampler& usage);

  int64_t steps() const { return steps_; }
  void add(const StepRecord& step);
  /// Of all ranks, on every rank; nothing where the run ended before a step counted. Collective over `world`.
  std::optional<TestFigures> figures(const comm::MpiGroup& world) const;

 private:
  void begin_metering();
  void read_meters();
  Power power(bool is_metered, const Energy& first, const Energy& last, const comm::MpiGroup& world) const;
  std::vector<std::vector<StepSeconds>> gathered_seconds(const comm::MpiGroup& world) const;

  int64_t steps_;
  int64_t warm_up_;
  UsageSampler& usage_;
  int64_t num_done_ = 0;
  std::vector<StepSeconds> seconds_;  // of the steps that count
  std::vector<double> samples_;
  Meters first_;
  Meters last_;
  Timer since_metering_;
  double metered_seconds_ = 0.0;
};

}  // namespace vit_hybrid::train
