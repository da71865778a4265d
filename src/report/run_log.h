// RunLog: what a run prints and records, step by step and epoch by epoch.
#pragma once

#include <array>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/timer.h"
#include "src/report/metrics_log.h"
#include "src/report/scores.h"

namespace vit_hybrid::train {

struct EpochRecord {
  int64_t epoch = 1;
  int64_t step = 0;  ///< the last one of the epoch
  int64_t samples = 0;
  double train_loss = 0.0;
  double seconds = 0.0;         ///< of training, without validation
  double mean_data_wait = 0.0;  ///< sums over the steps of what StepRecord has
  double most_data_wait = 0.0;

  double samples_per_second() const { return static_cast<double>(samples) / seconds; }
};

/// Figures of one validation, after `epoch` epochs (0: the untrained network) and `step` steps.
struct ValidationRecord {
  int64_t epoch = 0;
  int64_t step = 0;
  Evaluation figures;
  double seconds = 0.0;
};

/// Training loss and samples/s of each epoch; with validations theirs too: the loss, and RMSE beside persistence
/// (means over the channels) or top-1 and top-5. Pure.
std::vector<std::string> epoch_table(const std::vector<EpochRecord>& epochs,
                                     const std::vector<ValidationRecord>& validations);

/// Seconds of one step, or of a run, on one rank by phase; forward, backward, reduce and optimizer are those of the
/// device. `communication` is time blocked in communicators, wherever it fell, so the phases do not add up to `step`.
struct StepSeconds {
  double step = 0.0;
  double forward = 0.0;
  double backward = 0.0;
  double reduce = 0.0;  ///< waiting for gradients after backward, and their norm
  double communication = 0.0;
  double optimizer = 0.0;
  double data_wait = 0.0;

  void add(const StepSeconds& other);
};

/// The parts of a step in the order in which they are shown, with their names in summary.json.
inline constexpr std::array<std::pair<const char*, double StepSeconds::*>, 7> kStepParts = {{
    {"step", &StepSeconds::step},
    {"data_wait", &StepSeconds::data_wait},
    {"forward", &StepSeconds::forward},
    {"backward", &StepSeconds::backward},
    {"reduce", &StepSeconds::reduce},
    {"optimizer", &StepSeconds::optimizer},
    {"communication", &StepSeconds::communication},
}};

/// As an object with one number by phase.
Json to_json(const StepSeconds& seconds);

struct StepRecord {
  int64_t step = 0;   ///< optimizer steps done
  int64_t epoch = 1;  ///< from 1
  int64_t samples = 0;
  double loss = 0.0;
  double lr = 0.0;
  double grad_norm = 0.0;
  bool skipped = false;
  double loss_scale = 1.0;
  StepSeconds seconds;
  double mean_data_wait = 0.0;  ///< seconds, over all ranks
  double most_data_wait = 0.0;  ///< of the rank that waited longest

  double samples_per_second() const { return static_cast<double>(samples) / seconds.step; }
};

/// What was counted after a step, by --histogram-every.
struct HistogramsRecord {
  int64_t step = 0;
  std::vector<ParameterHistograms> parameters;
  double seconds = 0.0;  ///< that it took
};

/// Prints the lines that users of the reference workload look for (docs/workload.md, "Recipe"), writes a record of each
/// event, and ends with a table. Lines and records appear on rank 0 only, by the rules of base/log.h and MetricsLog.
class RunLog {
 public:
  /// `channel_names` name the fields of a forecast. A line is printed for every `interval`-th step and the last one.
  /// Records go nowhere before open().
  RunLog(std::vector<std::string> channel_names, int64_t interval);
  // A thread that writes points here.
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  void open(MetricsLog metrics) { metrics_ = std::move(metrics); }
  void set_total_steps(int64_t total_steps) { total_steps_ = total_steps; }
  /// A record of another kind, as it is.
  void event(const Json& record);
  /// A thread writes record and line, so that the next step can be started meanwhile: on a cluster's file system that
  /// takes milliseconds. All other records, and the next step's, come behind them.
  void step(const StepRecord& record);
  /// Waits until the last step is written, and throws what stood in the way. To be called before anybody else prints.
  void settle();
  void epoch(const EpochRecord& record);
  void validation(ValidationRecord record);
  /// Of ranks that became slow, or are so no more, as straggler_lines() takes them: warns.
  void stragglers(int64_t step, const std::vector<Json>& found);
  /// A record of NetworkWatch::tell(): warns where a link is slow.
  void network(const Json& record);
  /// Warns where values are not finite.
  void histograms(const HistogramsRecord& record);

  /// Warns where there were any.
  void warn_of_skipped_steps() const;
  /// Prints epoch_table().
  void print_table() const;
  /// The same figures for summary.json.
  Json final_figures() const;
  /// Median over the steps without the first, which warms up; 0 where no step was done.
  double median_samples_per_second() const;

 private:
  /// A step for people, with the time that the rest of the run will take, as far as that can be known.
  std::string step_text(const StepRecord& record);
  Json valid_record(const ValidationRecord& record) const;

  MetricsLog metrics_;
  std::vector<std::string> channel_names_;
  int64_t interval_;
  int64_t total_steps_ = 0;
  int64_t skipped_steps_ = 0;
  std::vector<EpochRecord> epochs_;
  std::vector<ValidationRecord> validations_;
  std::vector<double> step_rates_;  // samples/s of each step
  std::optional<StepRecord> last_step_;
  std::optional<int64_t> first_step_;  // of this process
  Timer since_first_step_;
  std::future<void> writing_;  // of the last step; the last member: it ends before the others
};

}  // namespace vit_hybrid::train
