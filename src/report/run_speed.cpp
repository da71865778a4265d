// RunSpeed: spreads of sorted values, shares of the roof, and their lines.
#include "src/report/run_speed.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>

#include "model/vit_costs.h"
#include "parallel/comm/failure.h"
#include "src/base/device/gpu_survey.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/machine/processor.h"
#include "src/machine/roofline.h"
#include "src/report/run_log.h"

namespace vit_hybrid::train {

Spread spread_of(std::vector<double> values) {
  VH_ASSERT(!values.empty(), "no values");
  std::sort(values.begin(), values.end());
  const size_t count = values.size();
  Spread spread;
  spread.min = values.front();
  spread.median = 0.5 * (values[(count - 1) / 2] + values[count / 2]);
  spread.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(count);
  double squares = 0.0;
  for (const double value : values) {
    squares += (value - spread.mean) * (value - spread.mean);
  }
  spread.deviation = count > 1 ? std::sqrt(squares / static_cast<double>(count - 1)) : 0.0;
  return spread;
}

int64_t warm_up_steps(int64_t steps) {
  return steps < 2 ? 0 : std::clamp<int64_t>(steps / 5, 1, 5);
}

namespace {

// The steps of a run that was not made to be measured take at least so many times as long.
constexpr double kWorthIt = 20.0;

// Sum over the ranks, known where each rank knows its own.
Speed sum_of(const Speed& own, const comm::MpiGroup& world) {
  std::vector<double> sums = {own.flops.value_or(0.0), own.flops ? 1.0 : 0.0};
  world.sum(sums);
  if (sums[1] == world.size()) {
    return {sums[0], {}};
  }
  return {std::nullopt, own.flops ? "it is not known of every rank" : own.missing};
}

Speed roof_of(at::ScalarType type, const FinishedRun& run, c10::Device device, const comm::MpiGroup& world) {
  if (run.was_interrupted) {
    return {std::nullopt, "the run was interrupted"};
  }
  if (!run.is_test && run.step_seconds < kWorthIt * kRoofSeconds) {
    return {std::nullopt, str("it is measured with --test, or after steps that took ", kWorthIt * kRoofSeconds,
                              " s; these took ", fixed_text(run.step_seconds, 2), " s")};
  }
  const auto own = measure_matmul_roof(device, type, kRoofSeconds, [&] { world.barrier(); });
  return sum_of({own, own ? "" : "the GPU has no memory left for the product"}, world);
}

Speed processor_peak(const Processor& processor, at::ScalarType type, double cores) {
  const int each = flops_per_cycle(processor, type);
  if (each == 0) {
    return {std::nullopt, str("the units of the processor, ", processor.name, ", are not known here")};
  }
  if (processor.max_hertz == 0.0) {
    return {std::nullopt, "the system does not tell the processor's highest frequency"};
  }
  return {cores * each * processor.max_hertz, {}};
}

// Ranks that share cores, or a GPU, share its peak.
Speed own_peak(Precision precision, at::ScalarType type, int ranks_per_gpu, const Machine& machine) {
  if (machine.device.is_cuda()) {
    const std::string name = survey_gpus().gpus.at(static_cast<size_t>(machine.device.index())).name;
    const double flops = gpu_peak_flops(name, precision);
    if (flops == 0.0) {
      return {std::nullopt, str("no data sheet of ", name, " is known here for ", precision_name(precision))};
    }
    return {flops / ranks_per_gpu, {}};
  }
  const double threads = at::get_num_threads();
  const double share = static_cast<double>(machine.node_cores) / comm::process_place().node_size;
  return processor_peak(this_processor(), type, machine.node_cores > 0 ? std::min(threads, share) : threads);
}

std::string flops_text(double flops) {
  constexpr double kTera = 1e12, kGiga = 1e9;
  return flops < kTera ? fixed_text(flops / kGiga, 1) + " GFLOP/s" : fixed_text(flops / kTera, 2) + " TFLOP/s";
}

void add(Json& json, const std::string& name, const Speed& speed, double model_flops) {
  if (!speed.flops) {
    json[name + "_flops_per_s"] = nullptr;
    json["percent_of_" + name] = nullptr;
    json[name + "_missing"] = speed.missing;
    return;
  }
  json[name + "_flops_per_s"] = *speed.flops;
  json["percent_of_" + name] = 100.0 * model_flops / *speed.flops;
}

std::string share_text(const char* of, const Speed& speed, double model_flops) {
  if (!speed.flops) {
    return str("  ", of, ": not known; ", speed.missing);
  }
  return str("  ", fixed_text(100.0 * model_flops / *speed.flops, 1), " % of ", of, ", ", flops_text(*speed.flops));
}

// What the rank with most tensors held, beside what was predicted for it, and its class that differs most.
std::string memory_line(const Json& ranks) {
  const auto held = [](const Json& rank) { return rank["memory"]["total_peak"].get<int64_t>(); };
  const Json& fullest =
      *std::max_element(ranks.begin(), ranks.end(), [&](const Json& a, const Json& b) { return held(a) < held(b); });
  const Json& peak = fullest["memory"]["peak"];
  const Json& predicted = fullest["memory"]["predicted"];
  const auto off = [&](const std::string& name) {
    return std::abs(peak[name].get<int64_t>() - predicted[name].get<int64_t>());
  };
  std::string worst = peak.begin().key();
  for (const auto& [name, bytes] : peak.items()) {
    worst = off(name) > off(worst) ? name : worst;
  }
  const std::string difference =
      100 * off(worst) <= held(fullest)
          ? "no class differs by more than 1 % of that; they need not peak at one time"
          : str("most differs ", worst, ", ", bytes_text(peak[worst]), " instead of ", bytes_text(predicted[worst]));
  const Json& memory = fullest["memory"];
  const auto text = [&](const char* what) { return bytes_text(memory[what].get<int64_t>()); };
  const Json& growing = memory["predicted_process"];
  const std::string growth = growing.is_null() ? "" : str(", ", bytes_text(growing.get<int64_t>()), " more predicted");
  return str("most memory of a rank: tensors ", bytes_text(held(fullest)), " (predicted ", text("predicted_total"),
             "; ", difference, "), process ", text("process_peak"), " (", text("process_start"), " at its start",
             growth, ")", memory["allocator_peak"].get<int64_t>() > 0 ? ", allocator " + text("allocator_peak") : "");
}

double sum_of(const Json& ranks, const char* part) {
  double sum = 0.0;
  for (const Json& rank : ranks) {
    sum += rank["seconds"][part].get<double>();
  }
  return sum;
}

constexpr std::array<const char*, 6> kPredictedPhases = {"data_wait", "forward",   "backward",
                                                         "reduce",    "optimizer", "waiting"};

}  // namespace

RunSpeed measure_run_speed(const model::VitOptions& model, const PrecisionConfig& precision, int ranks_per_gpu,
                           const FinishedRun& run, const Machine& machine, const comm::MpiGroup& world) {
  const at::ScalarType type = precision_policy(precision).compute;
  RunSpeed speed;
  speed.samples_per_second = run.samples_per_second;
  speed.model_flops = run.samples_per_second * model::train_flops_per_sample(model);
  speed.roof = believable_roof(roof_of(type, run, machine.device, world), speed.model_flops);
  speed.peak = sum_of(own_peak(precision.kind, type, ranks_per_gpu, machine), world);
  return speed;
}

Speed believable_roof(const Speed& roof, double model_flops) {
  if (!roof.flops || *roof.flops >= model_flops) {
    return roof;
  }
  return {std::nullopt, str("products reached ", flops_text(*roof.flops), ", less than the model's own rate: other ",
                            "programs were at work while they were measured")};
}

Json to_json(const RunSpeed& speed) {
  Json json = {{"samples_per_s", speed.samples_per_second}, {"model_flops_per_s", speed.model_flops}};
  add(json, "roof", speed.roof, speed.model_flops);
  add(json, "peak", speed.peak, speed.model_flops);
  return json;
}

std::vector<std::string> speed_lines(const RunSpeed& speed) {
  return {str("speed: ", fixed_text(speed.samples_per_second, 2), " samples/s (median of the steps), ",
              flops_text(speed.model_flops), " of the model's arithmetic"),
          share_text("the measured matmul roof of all ranks", speed.roof, speed.model_flops),
          share_text("their peak by data sheet", speed.peak, speed.model_flops)};
}

std::vector<std::string> resource_lines(const Json& ranks) {
  const double whole = sum_of(ranks, "step");
  std::vector<std::string> shares;
  std::string communication;
  double rest = 100.0;
  for (const auto& [part, member] : kStepParts) {
    const double share = whole > 0.0 ? 100.0 * sum_of(ranks, part) / whole : 0.0;
    rest -= member == &StepSeconds::step || member == &StepSeconds::communication ? 0.0 : share;
    std::string name = part;
    std::replace(name.begin(), name.end(), '_', ' ');
    if (member == &StepSeconds::communication) {
      communication = str("; blocked in communication, in whichever part, ", fixed_text(share, 1), " %");
    } else if (member != &StepSeconds::step) {
      shares.push_back(str(name, " ", fixed_text(share, 1), " %"));
    }
  }
  shares.push_back(str("waiting ", fixed_text(std::max(rest, 0.0), 1), " %"));
  return {str("time of the steps, mean of the ranks: ", join(shares), communication), memory_line(ranks)};
}

Json time_figures(const TimePlan& predicted, double step_seconds, const Json& ranks) {
  Json measured;
  const double whole = sum_of(ranks, "step");
  double waiting = step_seconds;
  for (const char* const phase : kPredictedPhases) {
    if (std::string_view(phase) != "waiting") {
      const double seconds = whole > 0.0 ? step_seconds * sum_of(ranks, phase) / whole : 0.0;
      measured[phase] = seconds;
      waiting -= seconds;
    }
  }
  measured["waiting"] = std::max(waiting, 0.0);
  measured["step"] = step_seconds;
  return {{"predicted", to_json(predicted)}, {"measured", std::move(measured)}};
}

std::string time_line(const Json& figures) {
  const auto of = [&](const char* kind, const char* phase) { return figures[kind][phase].get<double>(); };
  const auto* const most =
      *std::max_element(kPredictedPhases.begin(), kPredictedPhases.end(), [&](const char* a, const char* b) {
        const auto difference = [&](const char* phase) {
          return std::abs(of("predicted", phase) - of("measured", phase));
        };
        return difference(a) < difference(b);
      });
  return str("time of a step: ", number_text(of("measured", "step"), 3), " s (predicted ",
             number_text(of("predicted", "step"), 3), " s; most differs ", most, ", ",
             number_text(of("measured", most), 3), " s instead of ", number_text(of("predicted", most), 3), " s)");
}

}  // namespace vit_hybrid::train
