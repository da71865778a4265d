// RunSpeed as a record and as text. Pure.
#include <algorithm>
#include <array>

#include "src/base/quantity_text.h"
#include "src/base/text.h"
#include "src/report/run_speed.h"
#include "src/report/test_figures.h"

namespace vit_hybrid::train {

namespace {

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

// The largest value over the ranks of one of their bytes.
int64_t most(const Json& ranks, const Json::json_pointer& what) {
  int64_t bytes = 0;
  for (const Json& rank : ranks) {
    bytes = std::max(bytes, rank["memory"][what].get<int64_t>());
  }
  return bytes;
}

std::string memory_line(const Json& ranks, int64_t estimated_activation_bytes) {
  const auto text = [&](const char* what) { return bytes_text(most(ranks, Json::json_pointer(what))); };
  return str("most memory of a rank: tensors ", text("/total_peak"), ", activations at most ",
             text("/peak/activations"), " (estimated ", bytes_text(estimated_activation_bytes), "), process ",
             text("/process_peak"),
             most(ranks, Json::json_pointer("/device_peak")) > 0 ? ", GPU " + text("/device_peak") : "");
}

double sum_of(const Json& ranks, const char* part) {
  double sum = 0.0;
  for (const Json& rank : ranks) {
    sum += rank["seconds"][part].get<double>();
  }
  return sum;
}

}  // namespace

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

std::vector<std::string> resource_lines(const Json& ranks, int64_t estimated_activation_bytes) {
  const double whole = sum_of(ranks, "step");
  std::vector<std::string> shares;
  std::string communication;
  for (const auto& [part, member] : kStepParts) {
    const double share = whole > 0.0 ? 100.0 * sum_of(ranks, part) / whole : 0.0;
    std::string name = part;
    std::replace(name.begin(), name.end(), '_', ' ');
    if (member == &StepSeconds::communication) {
      communication = str("; blocked in communication, in whichever part, ", fixed_text(share, 1), " %");
    } else if (member != &StepSeconds::step) {
      shares.push_back(str(name, " ", fixed_text(share, 1), " %"));
    }
  }
  return {str("time of the steps, mean of the ranks: ", join(shares), communication),
          memory_line(ranks, estimated_activation_bytes)};
}

}  // namespace vit_hybrid::train
