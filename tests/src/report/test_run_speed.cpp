// A run's speed in records and lines, and the roof's measuring.
#include <doctest/doctest.h>

#include "parallel/mesh/device_mesh.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/machine/roofline.h"
#include "src/report/run_speed.h"
#include "tests/support/contains.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;
using doctest::Approx;
using testing::contains;

namespace {

RunSpeed some_speed() {
  RunSpeed speed;
  speed.samples_per_second = 12.5;
  speed.model_flops = 600e9;
  speed.roof.flops = 1.2e12;
  speed.peak.missing = "nobody knows";
  return speed;
}

Json rank(double step, double forward, double communication, int64_t tensors, int64_t activations, int64_t device,
          int64_t predicted = 0) {
  return {{"seconds",
           {{"step", step},
            {"forward", forward},
            {"backward", 0.0},
            {"reduce", 0.0},
            {"communication", communication},
            {"optimizer", 0.0},
            {"data_wait", 0.0}}},
          {"memory",
           {{"predicted", {{"activations", predicted}, {"data", 1 << 20}}},
            {"predicted_total", predicted + (1 << 20)},
            {"peak", {{"activations", activations}, {"data", 1 << 20}}},
            {"total_peak", tensors},
            {"predicted_process", device > 0 ? Json(nullptr) : Json(15 << 20)},
            {"process_start", 48 << 20},
            {"process_peak", (69 << 20) - tensors},
            {"allocator_peak", device}}}};
}

}  // namespace

TEST_CASE("run speed: per cent of the roof, and what is not known is null with its reason") {
  const Json json = to_json(some_speed());
  CHECK(json["samples_per_s"] == 12.5);
  CHECK(json["model_flops_per_s"] == 600e9);
  CHECK(json["roof_flops_per_s"] == 1.2e12);
  CHECK(json["percent_of_roof"].get<double>() == Approx(50.0));
  CHECK_FALSE(json.contains("roof_missing"));
  CHECK(json["peak_flops_per_s"].is_null());
  CHECK(json["percent_of_peak"].is_null());
  CHECK(json["peak_missing"] == "nobody knows");
  const std::string text = join(speed_lines(some_speed()), "\n");
  CHECK(contains(text, "speed: 12.50 samples/s (median of the steps), 600.0 GFLOP/s of the model's arithmetic"));
  CHECK(contains(text, "50.0 % of the measured matmul roof of all ranks, 1.20 TFLOP/s"));
  CHECK(contains(text, "their peak by data sheet: not known; nobody knows"));
}

TEST_CASE("run speed: a roof below the model's own rate is none, and says why") {
  const Speed roof = believable_roof({4.1e9, {}}, 40e9);
  CHECK_FALSE(roof.flops);
  CHECK(contains(roof.missing, "products reached 4.1 GFLOP/s, less than the model's own rate"));
  CHECK(believable_roof({40e9, {}}, 40e9).flops == 40e9);
  CHECK(believable_roof({std::nullopt, "nobody knows"}, 40e9).missing == "nobody knows");
}

TEST_CASE("run speed: time is the mean of the ranks, memory that of the fullest") {
  const Json ranks =
      Json::array({rank(10.0, 2.0, 1.0, 5 << 20, 2 << 20, 0, 3 << 19), rank(10.0, 4.0, 3.0, 3 << 20, 7 << 20, 0)});
  const std::string text = join(resource_lines(ranks), "\n");
  CHECK(contains(text, "forward 30.0 %"));
  CHECK(contains(text, "blocked in communication, in whichever part, 20.0 %"));
  CHECK(contains(text,
                 "tensors 5.00 MiB (predicted 2.50 MiB; most differs activations, 2.00 MiB instead of 1.50 "
                 "MiB), process 64.0 MiB (48.0 MiB at its start, 15.0 MiB more predicted)"));
  CHECK_FALSE(contains(text, "allocator"));
  const std::string on_gpu = join(resource_lines(Json::array({rank(1.0, 0.0, 0.0, 0, 0, 7 << 20)})));
  CHECK(contains(on_gpu, "process 69.0 MiB (48.0 MiB at its start), allocator 7.00 MiB"));
  CHECK(contains(on_gpu, "no class differs by more than 1 % of that"));
}

TEST_CASE("run speed: what is in no phase is waiting, and may differ most") {
  TimePlan predicted;
  predicted.forward = 0.1;
  predicted.step = 0.1;
  const Json figures = time_figures(predicted, 0.5, Json::array({rank(10.0, 2.0, 1.0, 0, 0, 0)}));
  CHECK(figures["measured"]["forward"].get<double>() == Approx(0.1));
  CHECK(figures["measured"]["waiting"].get<double>() == Approx(0.4));
  CHECK(contains(time_line(figures), "most differs waiting, 0.4 s instead of 0 s"));
}

TEST_CASE("run speed: a roof is measured in every type, and its memory is given back") {
  const MemoryTracker::Attachment attachment;
  constexpr auto kUntagged = static_cast<size_t>(MemoryClass::kUntagged);
  MemoryTracker::reset_peaks();
  const MemoryReport before = MemoryTracker::report();
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const auto flops = measure_matmul_roof(c10::Device(c10::kCPU), type, 0.001);
    REQUIRE(flops.has_value());
    CHECK(*flops > 1e6);
  }
  const MemoryReport after = MemoryTracker::report();
  CHECK(after.total_current == before.total_current);
  CHECK(after.peak[kUntagged] == before.current[kUntagged]);
  CHECK(after.total_peak > before.total_current);
}
