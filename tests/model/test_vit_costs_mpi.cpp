// The estimate of the start line against what the tracker counts on each rank of a pipeline.
#include <doctest/doctest.h>

#include <algorithm>

#include "src/base/memory_tracker.h"
#include "src/config/run_config.h"
#include "src/plan/memory_plan.h"
#include "src/train/trainer.h"
#include "tests/support/training_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

constexpr size_t kSteps = 3;
constexpr size_t kActivations = static_cast<size_t>(MemoryClass::kActivations);

train::RunConfig config_of(int ranks, int pp) {
  train::RunConfig config;
  config.model.image_height = 32;
  config.model.image_width = 64;
  config.model.patch_height = config.model.patch_width = 4;
  config.model.in_channels = config.model.out_channels = 4;
  config.model.embed_dim = 128;
  config.model.depth = 4;
  config.model.num_heads = 4;
  config.model.mlp_hidden = 512;
  config.parallel.pp = pp;
  config.parallel.dp = ranks / pp;
  config.parallel.micro_batch_size = 2;
  config.global_batch_size = int64_t{10} * config.parallel.dp;
  return config;
}

// Of a step; the least of some, because what is sent stays longer where its receiver is late.
int64_t measured_peak(const train::RunConfig& config, const comm::MpiGroup& world) {
  const MemoryScope scope(MemoryClass::kData);
  Experiment experiment;
  experiment.options = train::engine_options(config);
  experiment.micro_batch_size = config.parallel.micro_batch_size;
  experiment.global_batches.assign(kSteps, config.global_batch_size);
  Layout layout;
  layout.dp = config.parallel.dp;
  layout.pp = config.parallel.pp;
  layout.schedule = config.parallel.schedule;
  Training training(experiment, layout, world);
  std::vector<int64_t> peaks;
  for (size_t step = 0; step < kSteps; ++step) {
    MemoryTracker::reset_peaks();
    training.run_steps(1);
    peaks.push_back(MemoryTracker::report().peak[kActivations]);
  }
  return *std::min_element(peaks.begin(), peaks.end());
}

}  // namespace

TEST_CASE("activation memory: the estimate is the tracker's peak within one per cent, on each stage") {
  constexpr double kBound = 0.01;
  const comm::MpiGroup world = comm::MpiGroup::world();
  const MemoryTracker::Attachment attachment;
  if (world.size() > 4) {
    MESSAGE("skipped: fewer ranks have all of it");
    return;
  }
  for (const int pp : world.size() == 1 ? std::vector<int>{1} : std::vector<int>{2, 4}) {
    if (pp > world.size()) {
      continue;
    }
    train::RunConfig config = config_of(world.size(), pp);
    const int stage = world.rank() / config.parallel.dp;
    for (const char* schedule : {"1f1b", "gpipe"}) {
      for (const auto precision : {train::Precision::kFp32, train::Precision::kBf16, train::Precision::kFp16}) {
        config.parallel.schedule = schedule;
        config.precision.kind = precision;
        CAPTURE(pp);
        CAPTURE(config.parallel.schedule);
        CAPTURE(std::string(train::precision_name(precision)));
        const auto measured = static_cast<double>(measured_peak(config, world));
        const auto replica = train::plan_replica(config, world.rank() % config.parallel.dp);
        const int64_t formula = train::plan_memory(config, config.data, replica, {stage, 0}, {}).peak[kActivations];
        CHECK(measured / static_cast<double>(formula) == doctest::Approx(1.0).epsilon(kBound));
      }
    }
  }
}
