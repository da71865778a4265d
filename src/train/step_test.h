// StepTest: measures the steps of a test run (--test) on one rank, and gathers those of all into figures and lines.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/timer.h"
#include "src/report/metrics_log.h"
#include "src/report/run_log.h"
#include "src/report/run_speed.h"
#include "src/report/usage_sampler.h"

namespace vit_hybrid::train {

/// The seconds of one part of a step, of the slowest rank in each step.
struct PartFigures {
  Spread seconds;
  int slowest_rank = 0;  ///< the rank with the largest median
};

/// Mean power over the steps that count, or why it is not known.
struct Power {
  std::optional<double> watts;
  std::string missing;
};

struct TestFigures {
  int64_t steps = 0;    ///< that count
  int64_t warm_up = 0;  ///< steps before them
  std::array<PartFigures, kStepParts.size()> parts;
  Spread samples_per_second;
  double samples_per_step = 0.0;
  Power packages;  ///< processors of all nodes
  Power gpus;      ///< of all ranks

  /// Of the time that the steps took.
  double data_wait_percent() const;
};

/// Medians of a rank's steps, in the order of kStepParts.
using PartMedians = std::array<double, kStepParts.size()>;
PartMedians part_medians(const std::vector<StepSeconds>& steps);

/// `slowest`: of each of the steps that count, at least one, and each part the seconds of the slowest rank; `medians`
/// of every rank; `samples` of these steps.
TestFigures test_figures(const std::vector<StepSeconds>& slowest, const std::vector<PartMedians>& medians,
                         const std::vector<double>& samples);

/// The validation of the run that is tested, of which some batches were done.
struct TestedValidation {
  int64_t measured_batches = 0;  ///< 0: there is none
  int64_t batches = 0;           ///< of one validation
  double seconds = 0.0;          ///< of the measured ones

  double whole_seconds() const {
    return measured_batches > 0 ? seconds * static_cast<double>(batches) / static_cast<double>(measured_batches) : 0.0;
  }
};

/// Steps of an epoch, and of the whole run that is tested, which is validated after each epoch and before the first.
struct TestedRun {
  int64_t steps_per_epoch = 0;
  int64_t steps = 0;
  TestedValidation validation = {};

  int64_t validations() const { return steps_per_epoch > 0 ? (steps + steps_per_epoch - 1) / steps_per_epoch + 1 : 0; }
};

/// {"kind": "test", "steps", "warm_up_steps", "seconds_spread": {part: {min, median, mean, std, slowest_rank}}, ...}
Json to_json(const TestFigures& figures, const TestedRun& run);

/// The same for people. `ranks`: of gather_rank_reports().
std::vector<std::string> test_lines(const TestFigures& figures, const TestedRun& run, const Json& ranks);

/// Fed with every step of a run; the first few do not count.
class StepTest {
 public:
  /// `steps` of the run; `usage` reads the meters, and outlives the test.
  StepTest(int64_t steps, UsageSampler& usage);

  int64_t steps() const { return steps_; }
  void add(const StepRecord& step);
  /// Of all ranks, on rank 0; elsewhere without the numbers of the slowest. Nothing where the run ended before a step
  /// counted. Collective over `world`.
  std::optional<TestFigures> figures(const comm::MpiGroup& world) const;

 private:
  void begin_metering();
  void read_meters();
  Power power(bool is_metered, const Energy& first, const Energy& last, const comm::MpiGroup& world) const;
  std::vector<StepSeconds> slowest_seconds(const comm::MpiGroup& world) const;
  std::vector<PartMedians> gathered_medians(const comm::MpiGroup& world) const;

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
