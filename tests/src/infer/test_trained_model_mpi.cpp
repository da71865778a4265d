// A trained model in use holds its parameters, and nothing that only training needs.
#include <doctest/doctest.h>

#include "parallel/mesh/device_mesh.h"
#include "src/base/memory_tracker.h"
#include "src/config/run_config.h"
#include "src/infer/evaluate.h"
#include "src/infer/forecast.h"
#include "src/infer/model_use.h"
#include "src/train/engine.h"
#include "src/train/trainer.h"
#include "tests/support/model_use_harness.h"
#include "tests/support/scratch_folder.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using train::RunConfig;

namespace {

// The most bytes of each class while `use()` ran, beyond what was there before.
template <class Use>
MemoryReport peaks_of(const Use& use) {
  MemoryTracker::reset_peaks();
  const MemoryReport before = MemoryTracker::report();
  use();
  MemoryReport report = MemoryTracker::report();
  for (size_t i = 0; i < report.peak.size(); ++i) {
    report.peak[i] -= before.current[i];
  }
  return report;
}

int64_t peak(const MemoryReport& report, MemoryClass memory_class) {
  return report.peak[static_cast<size_t>(memory_class)];
}

// What lies in the flat buffer of this rank's slices, without gradients.
int64_t parameter_bytes(const RunConfig& config, mesh::DeviceMesh& mesh) {
  train::ModelRunner model(config.model, train::precision_policy(config.precision), mesh, std::nullopt);
  return static_cast<int64_t>(model.parameters().values().nbytes());
}

}  // namespace

TEST_CASE("trained model: evaluation and forecast allocate parameters, but no gradients and no optimizer state") {
  const Quiet quiet;
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  write_weather(world, folder.file("data"));
  for (const Layout& layout : layouts_of(world.size())) {
    CAPTURE(layout.text());
    const RunConfig config = weather_config(folder.file("data"), layout, train::Precision::kFp32);
    save_initial_model(world, config, folder.file("c.h5"));
    const train::CheckpointReader checkpoint(world, folder.file("c.h5"));
    mesh::DeviceMesh mesh(mesh::ParallelDims(layout.dp, layout.tp, layout.pp), world, c10::Device(c10::kCPU));
    const int64_t parameters = parameter_bytes(config, mesh);

    const auto check_alone = [&](const MemoryReport& report) {
      CHECK(peak(report, MemoryClass::kParameters) == parameters);
      CHECK(peak(report, MemoryClass::kGradients) == 0);
      CHECK(peak(report, MemoryClass::kOptimizer) == 0);
      CHECK(peak(report, MemoryClass::kActivations) > 0);
    };
    check_alone(peaks_of([&] { train::evaluate(config, {}, checkpoint, world); }));
    if (layout.dp == 1) {
      train::ForecastOptions options;
      options.use.out = folder.file("f.h5");
      options.use.overwrite = true;
      options.steps = 2;
      check_alone(peaks_of([&] { train::forecast(config, options, checkpoint, world); }));
    }
    // The same measurement sees what training holds.
    const MemoryReport training = peaks_of([&] {
      const MemoryTracker::Attachment attachment;
      const train::Engine engine(train::engine_options(config), mesh);
    });
    CHECK(peak(training, MemoryClass::kGradients) >= parameters);
    CHECK(peak(training, MemoryClass::kOptimizer) > 0);
    world.barrier();
  }
}
