// How fast a run was: samples, shares of time and of the roof, as figures and as lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/config/run_config.h"
#include "src/machine/device.h"
#include "src/plan/time_plan.h"
#include "src/report/metrics_log.h"

namespace vit_hybrid::train {

/// How a figure is spread over the steps.
struct Spread {
  double min = 0.0;
  double median = 0.0;  ///< of an even number of values the mean of the two in the middle
  double mean = 0.0;
  double deviation = 0.0;  ///< standard deviation of the sample (n - 1); 0 of one value
};

/// `values` has at least one.
Spread spread_of(std::vector<double> values);

/// How many of the first of `steps` steps warm caches, pages and allocators up and do not count: a fifth, 1 to 5, but
/// none of a single step.
int64_t warm_up_steps(int64_t steps);

/// FLOP/s of all ranks together, or why they are not known.
struct Speed {
  std::optional<double> flops;
  std::string missing;
};

struct RunSpeed {
  double samples_per_second = 0.0;  ///< median of the steps
  double model_flops = 0.0;         ///< a second, of the model's arithmetic; what recompute does again does not count
  Speed roof;                       ///< of matrix products, measured on all ranks at once
  Speed peak;                       ///< by data sheet
};

/// What a run was, as far as its speed goes; the same on all ranks but for the first.
struct FinishedRun {
  double samples_per_second = 0.0;
  double step_seconds = 0.0;     ///< of all steps
  bool is_test = false;          ///< was done to be measured
  bool was_interrupted = false;  ///< is to end soon
};

/// Measures the roof where that is worth its third of a second: in a test, and after steps that took many times as
/// long. Collective over `world`; no memory figure is to be taken after it.
RunSpeed measure_run_speed(const model::VitOptions& model, const PrecisionConfig& precision, int ranks_per_gpu,
                           const FinishedRun& run, const Machine& machine, const comm::MpiGroup& world);

/// The roof, unless the model itself was faster: then other programs had the cores while it was measured. Pure.
Speed believable_roof(const Speed& roof, double model_flops);

/// {"samples_per_s", "model_flops_per_s", "roof_flops_per_s", "percent_of_roof", "peak_flops_per_s",
/// "percent_of_peak"}, with null and "roof_missing" or "peak_missing" for what is not known.
Json to_json(const RunSpeed& speed);

/// The same for people, and from `ranks`, of gather_rank_reports(), the time by phase and the most memory, beside what
/// was predicted.
std::vector<std::string> speed_lines(const RunSpeed& speed);
std::vector<std::string> resource_lines(const Json& ranks);

/// {"predicted": {"forward", ..., "step"}, "measured": likewise}: seconds of a step. Measured is `step_seconds`, and of
/// the phases the shares that they have of the time of all steps of all `ranks` (gather_rank_reports()).
Json time_figures(const TimePlan& predicted, double step_seconds, const Json& ranks);
/// The step as predicted and as measured, and the phase that differs most.
std::string time_line(const Json& figures);

}  // namespace vit_hybrid::train
