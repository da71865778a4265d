// TestFigures: maxima over the ranks, spreads over the steps.
#include "src/report/test_figures.h"

#include <algorithm>

#include "src/base/error.h"

namespace vit_hybrid::train {

namespace {

using ByRank = std::vector<std::vector<StepSeconds>>;

std::vector<double> values_of(const std::vector<StepSeconds>& steps, double StepSeconds::*part) {
  std::vector<double> values;
  for (const StepSeconds& step : steps) {
    values.push_back(step.*part);
  }
  return values;
}

PartFigures part_figures(const ByRank& by_rank, double StepSeconds::*part) {
  PartFigures figures;
  std::vector<double> slowest(by_rank.front().size(), 0.0);
  double largest = -1.0;
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    const std::vector<double> values = values_of(by_rank[rank], part);
    VH_ASSERT(values.size() == slowest.size(), "ranks have done other numbers of steps");
    for (size_t i = 0; i < values.size(); ++i) {
      slowest[i] = std::max(slowest[i], values[i]);
    }
    if (const double median = spread_of(values).median; median > largest) {
      largest = median;
      figures.slowest_rank = static_cast<int>(rank);
    }
  }
  figures.seconds = spread_of(slowest);
  return figures;
}

double busy_median(const std::vector<StepSeconds>& steps) {
  std::vector<double> busy;
  for (const StepSeconds& step : steps) {
    busy.push_back(step.step - step.communication);
  }
  return spread_of(busy).median;
}

// Seconds of each step, of its slowest rank, against its samples.
Spread rates_of(const ByRank& by_rank, const std::vector<double>& samples) {
  std::vector<double> rates;
  for (size_t i = 0; i < samples.size(); ++i) {
    double seconds = 0.0;
    for (const auto& steps : by_rank) {
      seconds = std::max(seconds, steps[i].step);
    }
    rates.push_back(samples[i] / seconds);
  }
  return spread_of(rates);
}

Json to_json(const Spread& spread) {
  return {{"min", spread.min}, {"median", spread.median}, {"mean", spread.mean}, {"std", spread.deviation}};
}

Json to_json(const Power& power) {
  return power.watts ? Json{{"watts", *power.watts}} : Json{{"watts", nullptr}, {"missing", power.missing}};
}

Json extrapolated(int64_t steps, double seconds_per_step) {
  return {{"steps", steps}, {"duration", static_cast<double>(steps) * seconds_per_step}};
}

}  // namespace

double TestFigures::data_wait_percent() const {
  static_assert(kStepParts[0].second == &StepSeconds::step && kStepParts[1].second == &StepSeconds::data_wait);
  return 100.0 * parts[1].seconds.mean / parts[0].seconds.mean;
}

TestFigures test_figures(const ByRank& by_rank, const std::vector<double>& samples) {
  VH_ASSERT(!by_rank.empty() && !samples.empty(), "no steps");
  TestFigures figures;
  figures.steps = static_cast<int64_t>(samples.size());
  for (size_t i = 0; i < kStepParts.size(); ++i) {
    figures.parts[i] = part_figures(by_rank, kStepParts[i].second);
  }
  figures.samples_per_second = rates_of(by_rank, samples);
  figures.samples_per_step = spread_of(samples).mean;
  std::vector<double> busy;
  for (const auto& steps : by_rank) {
    busy.push_back(busy_median(steps));
  }
  const auto [fastest, slowest] = std::minmax_element(busy.begin(), busy.end());
  figures.slowest_rank = static_cast<int>(slowest - busy.begin());
  figures.slowest_busy = *slowest;
  figures.fastest_busy = *fastest;
  return figures;
}

Json to_json(const TestFigures& figures, const TestedRun& run) {
  Json json = {{"kind", "test"}, {"steps", figures.steps}, {"warm_up_steps", figures.warm_up}};
  for (size_t i = 0; i < kStepParts.size(); ++i) {
    Json& part = json["seconds_spread"][kStepParts[i].first];
    part = to_json(figures.parts[i].seconds);
    part["slowest_rank"] = figures.parts[i].slowest_rank;
  }
  json["samples_per_s_spread"] = to_json(figures.samples_per_second);
  json["slowest"] = {{"rank", figures.slowest_rank},
                     {"busy_seconds", figures.slowest_busy},
                     {"fastest_busy_seconds", figures.fastest_busy}};
  json["data_wait_percent"] = figures.data_wait_percent();
  json["power"] = {{"processors", to_json(figures.packages)}, {"gpus", to_json(figures.gpus)}};
  const double seconds = figures.parts.front().seconds.mean;
  json["whole_epoch"] = extrapolated(run.steps_per_epoch, seconds);
  json["whole_training"] = extrapolated(run.steps, seconds);
  return json;
}

}  // namespace vit_hybrid::train
