// changed_options(): texts against texts, as config_text() prints them.
#include "src/config/changed_options.h"

#include <map>
#include <string_view>

#include "src/base/text.h"
#include "src/config/run_options.h"
#include "src/config/stored_options.h"

namespace vit_hybrid::train {

namespace {

constexpr std::string_view kDecisive[] = {"precision",    "global-batch-size", "loss-scale",    "grad-dtype",
                                          "reduce-dtype", "deterministic",     "drop-last",     "interpolation",
                                          "mixup",        "optimizer",         "beta1",         "beta2",
                                          "eps",          "momentum",          "nesterov",      "trust-coefficient",
                                          "weight-decay", "decay-vectors",     "clip-norm",     "lr",
                                          "lr-schedule",  "lr-scaling",        "lr-batch-size", "warmup",
                                          "min-lr",       "decay-share",       "steps",         "epochs"};

// Programs without --min-lr called the reference workload's rule cosine; with no warm-up the two are one.
bool name_old_cosine(std::map<std::string, std::string>& before) {
  const auto schedule = before.find("lr_schedule");
  const auto warmup = before.find("warmup");
  const bool is_old = !before.contains("min_lr") && schedule != before.end() && schedule->second == "cosine" &&
                      warmup != before.end() && warmup->second != "0";
  if (is_old) {
    schedule->second = "cosine-reference";
  }
  return is_old;
}

}  // namespace

std::vector<std::string> changed_options(const std::string& stored, const RunConfig& config) {
  auto before = stored_options(stored);
  const bool has_old_cosine = name_old_cosine(before);
  RunConfig shown = config;  // the table binds to variables, though it only reads them here
  RunRequest request;
  const auto table = run_option_table(shown, request);
  std::vector<std::string> changes;
  for (const std::string_view name : kDecisive) {
    const options::Option& option = *table.find(std::string(name));
    const std::string now = option.value.print();
    const auto old = before.find(options::yaml_key(option.name));
    if (old != before.end() && old->second != now) {
      const char* const remark = has_old_cosine && name == "lr-schedule" ? ", then called cosine" : "";
      changes.push_back(str(name, " ", now, " (", old->second, remark, ")"));
    }
  }
  return changes;
}

}  // namespace vit_hybrid::train
