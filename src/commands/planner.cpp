// Planner: one layout at a time.
#include "src/commands/planner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/machine/device.h"
#include "src/machine/model_memory.h"

namespace vit_hybrid::commands {

using train::LoadedConfig;
using train::RunConfig;

std::string megabytes(double bytes) {
  return bytes_text(static_cast<int64_t>(std::llround(bytes)));
}

c10::DeviceType device_of(const RunConfig& config) {
  return config.device == train::DeviceChoice::kCuda ? c10::DeviceType::CUDA : c10::DeviceType::CPU;
}

namespace {

// What integers of 64 bits would not count.
std::vector<std::string> too_large(const RunConfig& config) {
  constexpr double kMost = 0x1p48;
  const auto least = train::least_bytes_per_rank(config, config.data, train::ModelPurpose::kTraining);
  const auto fields = 4.0 * static_cast<double>(config.parallel.micro_batch_size) *
                      static_cast<double>(config.model.in_channels + config.model.out_channels) *
                      static_cast<double>(config.model.image_height) * static_cast<double>(config.model.image_width);
  if (least.of_model + least.of_data + fields <= kMost) {
    return {};
  }
  return {
      "a rank of this training takes at least 256 TiB, more than is planned for; give a smaller model, image or "
      "micro-batch"};
}

// What a run with --cuda-graph on would refuse.
std::vector<std::string> unrecordable(const RunConfig& config) {
  try {
    static_cast<void>(train::step_recording(config, c10::Device(c10::DeviceType::CUDA, 0)));
    return {};
  } catch (const Error& error) {
    return {error.message()};
  }
}

}  // namespace

Planner::Planner(const train::RanksOnNodes& ranks, double memory_gib, LoadedConfig loaded,
                 std::optional<train::MachineFile> machine)
    : ranks_(ranks), memory_gib_(memory_gib), loaded_(std::move(loaded)), machine_(std::move(machine)) {
  const RunConfig& config = loaded_.config;
  const c10::DeviceType type = device_of(config);
  const c10::Device device(type, static_cast<c10::DeviceIndex>(type == at::kCUDA ? 0 : -1));
  compute_ = train::compute_traits(config.data, config.checkpoint, device, std::max(config.parallel.threads, 1));
}

std::optional<Planned> Planner::plan(int dp, int tp, int pp, std::vector<std::string>& problems) const {
  LoadedConfig loaded = loaded_;
  loaded.config.parallel.dp = dp;
  loaded.config.parallel.tp = tp;
  loaded.config.parallel.pp = pp;
  train::resolve(loaded.config, ranks_.ranks);
  problems = train::all_problems(loaded, ranks_.ranks);
  if (problems.empty()) {
    problems = too_large(loaded.config);
  }
  if (problems.empty() && compute_.device == c10::DeviceType::CUDA) {
    problems = unrecordable(loaded.config);
  }
  if (!problems.empty()) {
    return std::nullopt;
  }
  return planned(std::move(loaded.config));
}

std::string Planner::what_fits(const Planned& given) const {
  const bool holds_data = given.report.fullest.memory.on_host == 0;
  const double generated = holds_data ? train::generated_bytes(given.config.data, given.config.model) : 0.0;
  if (generated > 0.0 && fits(static_cast<double>(given.report.fullest.memory.taken()) - generated)) {
    return str("fits with data from files: those generated in memory take ", megabytes(generated));
  }
  int64_t least = given.report.fullest.memory.taken();
  std::string options = "as it is";
  for (int recompute = static_cast<int>(given.config.recompute); recompute <= 2; ++recompute) {
    for (int64_t micro_batch = given.config.parallel.micro_batch_size; micro_batch >= 1; micro_batch /= 2) {
      RunConfig config = given.config;
      config.recompute = static_cast<model::Recompute>(recompute);
      config.parallel.micro_batch_size = micro_batch;
      if (!train::problems(config, ranks_.ranks).empty()) {
        continue;
      }
      const Planned changed = planned(config);
      const std::string words = str("with --recompute ", train::kRecomputeNames.at(static_cast<size_t>(recompute)),
                                    " --micro-batch-size ", micro_batch);
      if (changed.fits) {
        return str("fits ", words,
                   changed.time ? str(", ", number_text(changed.samples_per_second(), 4), " samples/s") : "");
      }
      if (const int64_t bytes = changed.report.fullest.memory.taken(); bytes < least) {
        least = bytes;
        options = words;
      }
    }
  }
  const int64_t nccl = given.report.fullest.memory.libraries.nccl;
  return str("no --recompute and no smaller --micro-batch-size makes it fit: it takes ", bytes_text(least),
             " at least, ", options, "; ",
             nccl > least / 2
                 ? str(bytes_text(nccl), " are NCCL's buffers, of which --dp-max-ctas or fewer axes take less")
                 : "more --tp, --pp or, with --zero 1, --dp hold less");
}

train::ComputeTraits Planner::compute() const {
  train::ComputeTraits compute = compute_;
  for (int first = 0; first < ranks_.ranks; first += ranks_.per_node) {
    compute.nodes.push_back(std::min(ranks_.per_node, ranks_.ranks - first));
  }
  return compute;
}

std::string Planner::memory_text() const {
  return megabytes(memory_gib_ * 0x1p30) + " a rank";
}

Planned Planner::planned(RunConfig config) const {
  Planned planned{std::move(config), {}, {}, true, {}};
  planned.report = train::report_layout(planned.config, planned.config.data, compute());
  planned.least_bytes =
      train::plan_least_bytes(planned.config, train::plan_replica(planned.config, planned.config.parallel.dp - 1),
                              ranks_.per_node, compute_.device);
  planned.fits = fits(static_cast<double>(planned.report.fullest.memory.taken()));
  if (machine_) {
    planned.time = train::plan_time(planned.config, planned.config.data, *machine_, ranks_.per_node, compute_.threads);
  }
  return planned;
}

}  // namespace vit_hybrid::commands
