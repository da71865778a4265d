// The energy of a run by stage against closed forms, its sum over ranks, and a sampler on counters made for the test.
#include <doctest/doctest.h>

#include <string>

#include "src/base/host.h"
#include "src/base/timer.h"
#include "src/report/usage_sampler.h"
#include "tests/support/contains.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;

namespace {

using doctest::Approx;
using testing::contains;

Meters packages_at(double joules) {
  Meters meters;
  meters.has_packages = true;
  meters.packages.joules = joules;
  return meters;
}

// A rank whose training step has these parts.
Json ranks_of(double step, double forward, double backward) {
  return Json::array({{{"seconds",
                        {{"step", step},
                         {"data_wait", 0.0},
                         {"forward", forward},
                         {"backward", backward},
                         {"reduce", 0.0},
                         {"optimizer", 0.0}}}}});
}

Json counter(double joules, double peak) {
  return {{"joules", joules}, {"peak_watts", peak}};
}

}  // namespace

TEST_CASE("usage: what counters rise by is the stage's, and the peak is that of a sample") {
  StageEnergy energy;
  energy.add(RunStage::kStart, 0.0, packages_at(0.0), true);
  energy.add(RunStage::kStart, 2.0, packages_at(20.0), false);     // 10 W
  energy.add(RunStage::kTraining, 3.0, packages_at(120.0), true);  // 100 J in a second; the sample is 120 J in 3 s
  energy.add(RunStage::kTraining, 4.0, packages_at(200.0), true);  // 80 W
  energy.add(RunStage::kSaving, 4.5, packages_at(230.0), false);
  energy.add(RunStage::kTraining, 5.0, packages_at(240.0), true);
  const Json json = energy.to_json();
  CHECK(json.size() == 3);
  CHECK(json["start"]["seconds"] == 2.0);
  CHECK(json["start"]["packages"]["joules"] == 20.0);
  CHECK(json["start"]["packages"]["peak_watts"] == 10.0);
  CHECK(json["training"]["seconds"] == 2.5);
  CHECK(json["training"]["packages"]["joules"] == 190.0);
  CHECK(json["training"]["packages"]["peak_watts"] == 80.0);
  CHECK(json["saving"]["packages"]["peak_watts"] == 60.0);  // no sample fell into it: its mean
  CHECK_FALSE(json["saving"].contains("gpu"));
}

TEST_CASE("usage: a counter that fails is missing in every stage") {
  StageEnergy energy;
  energy.add(RunStage::kTraining, 1.0, packages_at(5.0), true);
  Meters failed = packages_at(0.0);
  failed.packages = {std::nullopt, "it failed"};
  energy.add(RunStage::kTraining, 2.0, failed, true);
  CHECK(energy.to_json()["training"]["packages"] == Json{{"missing", "it failed"}});
}

TEST_CASE("usage: a counter that stands still measures nothing") {
  StageEnergy energy;
  energy.add(RunStage::kTraining, 0.9, packages_at(0.0), true);
  CHECK(energy.to_json()["training"]["packages"]["joules"] == 0.0);  // too short to tell
  energy.add(RunStage::kTraining, 1.1, packages_at(0.0), true);
  CHECK(energy.to_json()["training"]["packages"] == Json{{"missing", "the counter stands still"}});
}

TEST_CASE("usage: energy is the sum over ranks, and that of training is shared by time") {
  const Json own =
      Json::array({{{"start", {{"seconds", 1.0}, {"packages", counter(10.0, 10.0)}, {"gpu", counter(5.0, 5.0)}}},
                    {"training", {{"seconds", 4.0}, {"packages", counter(100.0, 30.0)}, {"gpu", counter(60.0, 20.0)}}}},
                   {{"start", {{"seconds", 1.0}, {"gpu", counter(6.0, 6.0)}}},
                    {"training", {{"seconds", 4.0}, {"gpu", counter(40.0, 12.0)}}}}});
  const Json energy = energy_figures(own, 50, ranks_of(2.0, 0.5, 1.2));
  CHECK(energy["source"] == "processor packages (powercap) and GPUs (NVML)");
  CHECK(energy["stages"]["start"]["joules"] == 21.0);
  CHECK(energy["stages"]["training"]["joules"] == 200.0);
  CHECK(energy["stages"]["training"]["mean_watts"] == 50.0);
  CHECK(energy["stages"]["training"]["peak_watts"] == 62.0);
  CHECK(energy["joules_per_sample"] == 4.0);
  CHECK(energy["within_step"]["forward"].get<double>() == Approx(50.0));
  CHECK(energy["within_step"]["backward"].get<double>() == Approx(120.0));
  CHECK(energy["within_step"]["rest"].get<double>() == Approx(30.0));
  const std::string line = energy_line(energy);
  for (const char* expected : {"start 21 J (mean 21 W, peak 21 W)", "training 200 J (mean 50 W, peak 62 W)",
                               "4 J a sample of training", "by processor packages (powercap) and GPUs (NVML)"}) {
    CHECK_MESSAGE(contains(line, expected), expected, " in ", line);
  }
}

TEST_CASE("usage: what one node or GPU cannot tell is left out of all, with the reason") {
  const Json missing = {{"missing", "no permission"}};
  const Json readable = {
      {"training", {{"seconds", 4.0}, {"packages", counter(100.0, 30.0)}, {"gpu", counter(60.0, 20.0)}}}};
  const Json unreadable = {{"training", {{"seconds", 4.0}, {"packages", missing}, {"gpu", counter(60.0, 20.0)}}}};
  const Json energy = energy_figures(Json::array({readable, unreadable}), 1, ranks_of(1.0, 0.5, 0.5));
  CHECK(energy["source"] == "GPUs (NVML) without processors: no permission");
  CHECK(energy["stages"]["training"]["joules"] == 120.0);
  const Json blind = {{"training", {{"seconds", 4.0}, {"packages", missing}, {"gpu", {{"missing", "no counter"}}}}}};
  const Json none = energy_figures(Json::array({blind}), 1, ranks_of(1.0, 0.5, 0.5));
  CHECK(none == Json{{"unavailable", "no permission; no counter"}});
  CHECK(energy_line(none) == "energy: not known; no permission; no counter");
  const Json on_processors = {{"training", {{"seconds", 4.0}, {"packages", missing}}}};
  CHECK(energy_figures(Json::array({on_processors}), 1, {}) == Json{{"unavailable", "no permission"}});
}

TEST_CASE("usage: /proc tells of this process and its machine") {
  const ProcessUsage before = process_usage();
  const NodeUsage node = node_usage();
  CHECK(before.resident_bytes > 1 << 20);
  CHECK(node.memory_bytes > 0);
  CHECK(node.all > node.busy);
  for (const Timer timer; process_usage().cpu_seconds < before.cpu_seconds + 0.05;) {
    REQUIRE(timer.seconds() < 60.0);
  }
  CHECK(node_usage().busy > node.busy);
}
