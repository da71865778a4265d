// RunLog: lines and records of steps, epochs and validations, and the table at the end.
#include "src/report/run_log.h"

#include <algorithm>

#include "src/base/host.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/report/network_watch.h"
#include "src/report/run_speed.h"
#include "src/report/stragglers.h"

namespace vit_hybrid::train {

namespace {

using Lines = std::vector<std::string>;

std::string epoch_cell(const std::string& text) {
  return right_text(text, 14);
}

std::string first_cell(const std::string& text) {
  return right_text(text, 6);
}

const EpochRecord* find_epoch(const std::vector<EpochRecord>& epochs, int64_t number) {
  const auto found =
      std::find_if(epochs.begin(), epochs.end(), [&](const EpochRecord& epoch) { return epoch.epoch == number; });
  return found != epochs.end() ? &*found : nullptr;
}

Lines without_validation(const std::vector<EpochRecord>& epochs) {
  Lines lines = {str(first_cell("epoch"), epoch_cell("train loss"), epoch_cell("samples/s"))};
  for (const EpochRecord& epoch : epochs) {
    lines.push_back(str(first_cell(std::to_string(epoch.epoch)), epoch_cell(fixed_text(epoch.train_loss, 6)),
                        epoch_cell(fixed_text(epoch.samples_per_second(), 2))));
  }
  return lines;
}

std::string row(const ValidationRecord& validation, const EpochRecord* epoch) {
  const Evaluation& figures = validation.figures;
  const bool is_forecast = figures.is_forecast();
  return str(first_cell(std::to_string(validation.epoch)),
             epoch_cell(epoch != nullptr ? fixed_text(epoch->train_loss, 6) : "-"),
             epoch_cell(fixed_text(figures.loss, 6)),
             epoch_cell(fixed_text(is_forecast ? mean_of(figures.rmse) : figures.top1, 6)),
             epoch_cell(fixed_text(is_forecast ? mean_of(figures.persistence_rmse) : figures.top5, 6)),
             epoch_cell(epoch != nullptr ? fixed_text(epoch->samples_per_second(), 2) : "-"));
}

// "loss=0.35, RMSE=0.21 (persistence 0.40), ACC=0.97" or "loss=1.2, top-1=45.1 %, top-5=80.2 %".
std::string figures_text(const Evaluation& figures) {
  if (!figures.is_forecast()) {
    return str("top-1=", fixed_text(100.0 * figures.top1, 2), " %, top-5=", fixed_text(100.0 * figures.top5, 2), " %");
  }
  return str("RMSE=", fixed_text(mean_of(figures.rmse), 6), " (persistence ",
             fixed_text(mean_of(figures.persistence_rmse), 6), "), ACC=", fixed_text(mean_of(figures.acc), 6),
             " (persistence ", fixed_text(mean_of(figures.persistence_acc), 6), ")");
}

// Of all ranks, and of the slowest one in each step, whose share is of the `seconds` that the steps took.
void add_data_wait(Json& json, double mean, double most, double seconds) {
  json["data_wait_mean"] = mean;
  json["data_wait_max"] = most;
  json["data_wait_max_percent"] = seconds > 0.0 ? 100.0 * most / seconds : 0.0;
}

Json step_record(const StepRecord& record) {
  Json json = {{"kind", "step"},
               {"step", record.step},
               {"epoch", record.epoch},
               {"loss", record.loss},
               {"lr", record.lr},
               {"grad_norm", record.grad_norm},
               {"skipped", record.skipped},
               {"loss_scale", record.loss_scale},
               {"samples", record.samples},
               {"samples_per_s", record.samples_per_second()},
               {"seconds", to_json(record.seconds)}};
  add_data_wait(json, record.mean_data_wait, record.most_data_wait, record.seconds.step);
  return json;
}

Json epoch_figures(const EpochRecord& record) {
  Json json = {{"epoch", record.epoch},      {"step", record.step},
               {"loss", record.train_loss},  {"samples", record.samples},
               {"duration", record.seconds}, {"samples_per_s", record.samples_per_second()}};
  add_data_wait(json, record.mean_data_wait, record.most_data_wait, record.seconds);
  return json;
}

std::string percent_text(double part, double whole) {
  return fixed_text(whole > 0.0 ? 100.0 * part / whole : 0.0, 2) + " %";
}

}  // namespace

std::vector<std::string> epoch_table(const std::vector<EpochRecord>& epochs,
                                     const std::vector<ValidationRecord>& validations) {
  if (validations.empty()) {
    return without_validation(epochs);
  }
  const bool is_forecast = validations.front().figures.is_forecast();
  Lines lines = {str(first_cell("epoch"), epoch_cell("train loss"), epoch_cell("val loss"),
                     epoch_cell(is_forecast ? "RMSE" : "top-1"), epoch_cell(is_forecast ? "persistence" : "top-5"),
                     epoch_cell("samples/s"))};
  for (const ValidationRecord& validation : validations) {
    lines.push_back(row(validation, find_epoch(epochs, validation.epoch)));
  }
  if (is_forecast) {
    lines.emplace_back(
        "epoch 0 is the untrained network; RMSE and persistence are means over the channels, in standard deviations");
  }
  return lines;
}

void StepSeconds::add(const StepSeconds& other) {
  for (const auto& [name, part] : kStepParts) {
    this->*part += other.*part;
  }
}

Json to_json(const StepSeconds& seconds) {
  return {{"step", seconds.step},
          {"forward", seconds.forward},
          {"backward", seconds.backward},
          {"reduce", seconds.reduce},
          {"communication", seconds.communication},
          {"optimizer", seconds.optimizer},
          {"data_wait", seconds.data_wait}};
}

RunLog::RunLog(std::vector<std::string> channel_names, int64_t interval)
    : channel_names_(std::move(channel_names)), interval_(interval) {}

void RunLog::event(const Json& record) {
  settle();
  metrics_.write(record);
}

void RunLog::step(const StepRecord& record) {
  skipped_steps_ += record.skipped ? 1 : 0;
  step_rates_.push_back(record.samples_per_second());
  last_step_ = record;
  const bool is_line = record.step % interval_ == 0 || record.step == total_steps_ || record.skipped;
  const auto print = [is_line, text = step_text(record)] { is_line ? log_line(text) : show_progress(text); };
  if (!metrics_.is_open()) {
    print();
    return;
  }
  settle();
  writing_ = std::async(std::launch::async, [this, record, print] {
    block_signals_in_this_thread();
    use_allowed_processors();
    metrics_.write(step_record(record));
    print();
  });
}

void RunLog::settle() {
  if (writing_.valid()) {
    writing_.get();
  }
}

std::string RunLog::step_text(const StepRecord& record) {
  // With the validations and checkpoints that fell between the steps; the first one warms up.
  const int64_t done = record.step - first_step_.value_or(record.step);
  if (!first_step_) {
    first_step_ = record.step;
    since_first_step_.restart();
  }
  const double rest = done > 0 ? since_first_step_.seconds() / static_cast<double>(done) *
                                     static_cast<double>(total_steps_ - record.step)
                               : 0.0;
  return str("step ", record.step, "/", total_steps_, ", epoch ", record.epoch,
             rest > 0.0 ? ", " + rough_duration_text(rest) + " to go" : "", ": loss=", number_text(record.loss, 6),
             ", lr=", number_text(record.lr), ", grad norm=", number_text(record.grad_norm), ", ",
             number_text(record.samples_per_second()), " samples/s",
             record.loss_scale != 1.0 ? ", loss scale " + number_text(record.loss_scale, 9) : "",
             record.skipped ? ", SKIPPED: the gradient is not finite" : "");
}

void RunLog::epoch(const EpochRecord& record) {
  settle();
  Json json = {{"kind", "epoch"}};
  json.update(epoch_figures(record));
  metrics_.write(json);
  log_line(str("Time taken for epoch ", record.epoch, " is ", fixed_text(record.seconds, 6), " sec, avg ",
               fixed_text(record.samples_per_second(), 6), " samples/sec"));
  log_line(str("  Avg train loss=", fixed_text(record.train_loss, 6)));
  log_line(str("  Data wait: ", percent_text(record.mean_data_wait, record.seconds), " of the time, ",
               percent_text(record.most_data_wait, record.seconds), " where the slowest rank of each step counts"));
  epochs_.push_back(record);
}

void RunLog::validation(ValidationRecord record) {
  settle();
  metrics_.write(valid_record(record));
  if (record.epoch == 0) {
    log_line(str("Untrained network: val loss=", fixed_text(record.figures.loss, 6)));
  } else {
    log_line(str("  Avg val loss=", fixed_text(record.figures.loss, 6)));
  }
  log_line(str("  ", figures_text(record.figures)));
  log_line(str("  Total validation time: ", fixed_text(record.seconds, 6), " sec"));
  validations_.push_back(std::move(record));
}

Json RunLog::valid_record(const ValidationRecord& record) const {
  Json json = {{"kind", "valid"}, {"epoch", record.epoch}, {"step", record.step}, {"duration", record.seconds}};
  json.update(to_json(record.figures, channel_names_));
  return json;
}

void RunLog::stragglers(int64_t step, const std::vector<Json>& found) {
  settle();
  for (const Json& rank : found) {
    Json record = {{"kind", "straggler"}, {"step", step}};
    record.update(rank);
    metrics_.write(record);
  }
  const StragglerLines lines = straggler_lines(step, found);
  if (!lines.slow.empty()) {
    log_warning(lines.slow);
  }
  if (!lines.recovered.empty()) {
    log_line(lines.recovered);
  }
}

void RunLog::network(const Json& record) {
  event(record);
  record["slow_link"].get<bool>() ? log_warning(network_line(record)) : log_line(network_line(record));
}

void RunLog::histograms(const HistogramsRecord& record) {
  settle();
  int64_t not_finite = 0;
  Lines names;
  for (const ParameterHistograms& parameter : record.parameters) {
    for (const Histogram* histogram : {&parameter.weights, &parameter.gradient}) {
      if (histogram->not_finite > 0) {
        not_finite += histogram->not_finite;
        names.push_back(str(histogram->not_finite, " of ", histogram == &parameter.weights ? "" : "the gradient of ",
                            parameter.name));
      }
    }
  }
  metrics_.write_histograms(
      {{"kind", "histograms"}, {"step", record.step}, {"duration", record.seconds}, {"not_finite", not_finite}},
      record.parameters);
  if (not_finite > 0) {
    constexpr size_t kMostNames = 3;
    const size_t rest = names.size() - std::min(names.size(), kMostNames);
    names.resize(names.size() - rest);
    log_warning(str("the histograms of step ", record.step, " leave out ", not_finite, " values that are not finite: ",
                    join(names), rest > 0 ? str(", and some of ", rest, " more") : ""));
  }
}

double RunLog::median_samples_per_second() const {
  std::vector<double> rates(step_rates_.begin() + (step_rates_.size() > 1 ? 1 : 0), step_rates_.end());
  return rates.empty() ? 0.0 : spread_of(std::move(rates)).median;
}

void RunLog::warn_of_skipped_steps() const {
  if (skipped_steps_ > 0) {
    log_warning(str(skipped_steps_, " of the steps changed nothing: their gradient was not finite"));
  }
}

void RunLog::print_table() const {
  log_line("");
  log_lines(epoch_table(epochs_, validations_));
}

Json RunLog::final_figures() const {
  Json json = {{"steps", last_step_ ? last_step_->step : 0},
               {"skipped_steps", skipped_steps_},
               {"samples_per_s", median_samples_per_second()}};
  if (last_step_) {
    json["train_loss"] = last_step_->loss;
  }
  if (!validations_.empty()) {
    if (validations_.front().step == 0) {
      json["untrained"] = valid_record(validations_.front());
    }
    json["final"] = valid_record(validations_.back());
  }
  Json epochs = Json::array();
  for (const EpochRecord& epoch : epochs_) {
    epochs.push_back(epoch_figures(epoch));
  }
  json["epochs"] = std::move(epochs);
  return json;
}

}  // namespace vit_hybrid::train
