// StepTest: what is kept of each step, the gathering, and what is told of it.
#include "src/train/step_test.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <type_traits>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/report/run_speed.h"
#include "src/report/scores.h"

namespace vit_hybrid::train {

namespace {

using Lines = std::vector<std::string>;

// `value(step)` of each step.
template <class Value>
std::vector<double> values_of(const std::vector<StepSeconds>& steps, const Value& value) {
  std::vector<double> values;
  std::transform(steps.begin(), steps.end(), std::back_inserter(values), value);
  return values;
}

// Seconds of each step, of its slowest rank, against its samples.
Spread rates_of(const std::vector<StepSeconds>& slowest, const std::vector<double>& samples) {
  std::vector<double> rates;
  std::transform(samples.begin(), samples.end(), slowest.begin(), std::back_inserter(rates),
                 [](double count, const StepSeconds& step) { return count / step.step; });
  return spread_of(rates);
}

Json to_json(const Spread& spread) {
  return {{"min", spread.min}, {"median", spread.median}, {"mean", spread.mean}, {"std", spread.deviation}};
}

Json to_json(const Power& power) {
  return power.watts ? Json{{"watts", *power.watts}} : Json{{"watts", nullptr}, {"missing", power.missing}};
}

// Steps, and how long they and the validations among them take.
struct Extrapolated {
  int64_t steps = 0;
  double seconds = 0.0;
};

Extrapolated extrapolated(const TestFigures& figures, int64_t steps, const TestedRun& run, int64_t validations) {
  return {steps, static_cast<double>(steps) * figures.parts.front().seconds.mean +
                     static_cast<double>(validations) * run.validation.whole_seconds()};
}

Json to_json(const Extrapolated& part) {
  return {{"steps", part.steps}, {"duration", part.seconds}};
}

constexpr size_t kMostRanksShown = 16;  // that are shown
constexpr size_t kCell = 11;

std::string cell(const std::string& text) {
  return right_text(text, kCell);
}

std::string milliseconds(double seconds) {
  return cell(fixed_text(1e3 * seconds, 3));
}

std::string mebibytes(const Json& bytes) {
  return cell(fixed_text(bytes.get<double>() / (1 << 20), 1));
}

void add_times(const TestFigures& figures, Lines& lines) {
  lines.push_back(str(right_text("ms a step", 16), cell("min"), cell("median"), cell("std"), "  slowest rank"));
  for (size_t i = 0; i < kStepParts.size(); ++i) {
    const auto& [seconds, rank] = figures.parts[i];
    std::string name = kStepParts[i].first;
    std::replace(name.begin(), name.end(), '_', ' ');
    lines.push_back(str("  ", name, std::string(14 - name.size(), ' '), milliseconds(seconds.min),
                        milliseconds(seconds.median), milliseconds(seconds.deviation), cell(std::to_string(rank))));
  }
  lines.push_back(
      "  each value is that of the slowest rank in its step; communication is time blocked, in whichever part");
}

void add_rates(const TestFigures& figures, Lines& lines) {
  lines.push_back(str("samples/s: median ", fixed_text(figures.samples_per_second.median, 2), ", std ",
                      fixed_text(figures.samples_per_second.deviation, 2), "; ", number_text(figures.samples_per_step),
                      " samples a step"));
  lines.push_back(str("data wait: ", fixed_text(figures.data_wait_percent(), 2), " % of the time"));
}

std::vector<const Json*> heaviest(const Json& ranks) {
  std::vector<const Json*> rows;
  for (const Json& rank : ranks) {
    rows.push_back(&rank);
  }
  if (rows.size() > kMostRanksShown) {
    const auto bytes = [](const Json* rank) { return (*rank)["memory"]["total_peak"].get<int64_t>(); };
    std::stable_sort(rows.begin(), rows.end(), [&](const Json* a, const Json* b) { return bytes(a) > bytes(b); });
    rows.resize(kMostRanksShown);
  }
  return rows;
}

void add_memory(const Json& ranks, Lines& lines) {
  std::string head = str(right_text("peak MiB of rank", 16), cell("tensors"));
  for (int i = 0; i < kNumMemoryClasses; ++i) {
    const auto name = std::string(memory_class_name(static_cast<MemoryClass>(i)));
    head += name == "untagged" ? "" : str(" ", right_text(name, std::max(kCell - 1, name.size())));
  }
  lines.push_back(head + cell("process") + cell("allocator"));
  for (const Json* rank : heaviest(ranks)) {
    const Json& memory = (*rank)["memory"];
    std::string line = right_text(std::to_string((*rank)["rank"].get<int>()), 16) + mebibytes(memory["total_peak"]);
    for (const auto& [name, bytes] : memory["peak"].items()) {
      line += name == "untagged" ? "" : right_text(mebibytes(bytes), std::max(kCell, name.size() + 1));
    }
    const Json& held = memory["allocator_peak"];
    lines.push_back(line + mebibytes(memory["process_peak"]) + (held == 0 ? cell("-") : mebibytes(held)));
  }
  if (ranks.size() > kMostRanksShown) {
    lines.push_back(
        str("  (the ", kMostRanksShown, " of ", ranks.size(), " ranks with the most; all are in summary.json)"));
  }
}

std::string power_text(const Power& power, const char* of) {
  return power.watts ? str(fixed_text(*power.watts, 1), " W (", of, ")")
                     : str("not available here (", of, ": ", power.missing, ")");
}

std::string extrapolation(const char* what, const Extrapolated& part, const TestedRun& run, int64_t validations) {
  const std::string steps = str(what, ": ", part.steps, " steps");
  const std::string validation = run.validation.measured_batches > 0
                                     ? str(" and ", validations, validations == 1 ? " validation" : " validations")
                                     : "";
  return str(steps, validation, ", ", duration_text(part.seconds), ", without checkpoints");
}

}  // namespace

double TestFigures::data_wait_percent() const {
  static_assert(kStepParts[0].second == &StepSeconds::step && kStepParts[1].second == &StepSeconds::data_wait);
  return 100.0 * parts[1].seconds.mean / parts[0].seconds.mean;
}

PartMedians part_medians(const std::vector<StepSeconds>& steps) {
  PartMedians medians{};
  for (size_t i = 0; i < kStepParts.size(); ++i) {
    medians[i] = spread_of(values_of(steps, std::mem_fn(kStepParts[i].second))).median;
  }
  return medians;
}

TestFigures test_figures(const std::vector<StepSeconds>& slowest, const std::vector<PartMedians>& medians,
                         const std::vector<double>& samples) {
  VH_ASSERT(!samples.empty() && samples.size() == slowest.size(), "no steps, or another number of them");
  TestFigures figures;
  figures.steps = static_cast<int64_t>(samples.size());
  for (size_t i = 0; i < kStepParts.size(); ++i) {
    figures.parts[i].seconds = spread_of(values_of(slowest, std::mem_fn(kStepParts[i].second)));
    const auto largest = std::max_element(medians.begin(), medians.end(),
                                          [i](const auto& first, const auto& second) { return first[i] < second[i]; });
    figures.parts[i].slowest_rank = medians.empty() ? 0 : static_cast<int>(largest - medians.begin());
  }
  figures.samples_per_second = rates_of(slowest, samples);
  figures.samples_per_step = spread_of(samples).mean;
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
  json["data_wait_percent"] = figures.data_wait_percent();
  json["power"] = {{"processors", to_json(figures.packages)}, {"gpus", to_json(figures.gpus)}};
  if (run.validation.measured_batches > 0) {
    json["validation"] = {{"batches", run.validation.measured_batches},
                          {"seconds", run.validation.seconds},
                          {"whole_batches", run.validation.batches},
                          {"whole_seconds", run.validation.whole_seconds()}};
  }
  json["whole_epoch"] = to_json(extrapolated(figures, run.steps_per_epoch, run, 1));
  json["whole_training"] = to_json(extrapolated(figures, run.steps, run, run.validations()));
  return json;
}

Lines test_lines(const TestFigures& figures, const TestedRun& run, const Json& ranks) {
  Lines lines = {"",
                 str("test of ", figures.steps, " steps, after ", figures.warm_up, " that warm up and do not count")};
  add_times(figures, lines);
  add_rates(figures, lines);
  add_memory(ranks, lines);
  lines.push_back("power: " + power_text(figures.packages, "processors of all nodes"));
  lines.push_back("power: " + power_text(figures.gpus, "GPUs of all ranks"));
  if (const TestedValidation& validation = run.validation; validation.measured_batches > 0) {
    lines.push_back(str("a validation: ", validation.batches, " batches, ", duration_text(validation.whole_seconds()),
                        ", by ", validation.measured_batches, " of them"));
  }
  lines.push_back(extrapolation("an epoch", extrapolated(figures, run.steps_per_epoch, run, 1), run, 1));
  lines.push_back(extrapolation("the whole training", extrapolated(figures, run.steps, run, run.validations()), run,
                                run.validations()));
  return lines;
}

StepTest::StepTest(int64_t steps, UsageSampler& usage) : steps_(steps), warm_up_(warm_up_steps(steps)), usage_(usage) {
  if (warm_up_ == 0) {
    begin_metering();
  }
}

void StepTest::begin_metering() {
  first_ = usage_.read();
  since_metering_.restart();
}

void StepTest::read_meters() {
  last_ = usage_.read();
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

std::vector<StepSeconds> StepTest::slowest_seconds(const comm::MpiGroup& world) const {
  static_assert(std::is_trivially_copyable_v<StepSeconds> && sizeof(StepSeconds) % sizeof(double) == 0);
  const size_t bytes = seconds_.size() * sizeof(StepSeconds);
  std::vector<double> most(bytes / sizeof(double));
  std::memcpy(most.data(), seconds_.data(), bytes);
  world.max(most);
  std::vector<StepSeconds> slowest(seconds_.size());
  std::memcpy(static_cast<void*>(slowest.data()), most.data(), bytes);
  return slowest;
}

std::vector<PartMedians> StepTest::gathered_medians(const comm::MpiGroup& world) const {
  const PartMedians own = part_medians(seconds_);
  std::vector<PartMedians> medians;
  for (const std::string& bytes : world.gather(std::string(reinterpret_cast<const char*>(own.data()), sizeof own))) {
    std::memcpy(medians.emplace_back().data(), bytes.data(), sizeof own);
  }
  return medians;
}

Power StepTest::power(bool is_metered, const Energy& first, const Energy& last, const comm::MpiGroup& world) const {
  const bool is_known = last.joules.has_value();
  // Joules, meters, and meters that can be read.
  std::vector<double> sums = {is_known ? *last.joules - first.joules.value_or(0.0) : 0.0, is_metered ? 1.0 : 0.0,
                              is_known ? 1.0 : 0.0};
  world.sum(sums);
  if (sums[1] == 0.0) {
    return {std::nullopt, "no GPU is used"};
  }
  if (sums[2] == sums[1] && metered_seconds_ > 0.0) {
    return sums[0] > 0.0 ? Power{sums[0] / metered_seconds_, {}} : Power{std::nullopt, "the counter stands still"};
  }
  return {std::nullopt, is_known ? "it cannot be read on every node" : last.missing};
}

std::optional<TestFigures> StepTest::figures(const comm::MpiGroup& world) const {
  if (seconds_.empty()) {
    return std::nullopt;  // all ranks have done the same steps
  }
  TestFigures figures = test_figures(slowest_seconds(world), gathered_medians(world), samples_);
  figures.warm_up = warm_up_;
  figures.packages = power(last_.has_packages, first_.packages, last_.packages, world);
  figures.gpus = power(last_.has_gpu, first_.gpu, last_.gpu, world);
  return figures;
}

}  // namespace vit_hybrid::train
