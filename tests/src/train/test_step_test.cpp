// The test mode's statistics against closed forms, and its energy meters against counters made for the test.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "src/base/device/energy_meter.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/report/run_speed.h"
#include "src/train/step_test.h"
#include "tests/support/contains.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;
namespace fs = std::filesystem;

namespace {

using doctest::Approx;
using testing::contains;

StepSeconds seconds_of(double step, double forward, double communication, double data_wait) {
  StepSeconds seconds;
  seconds.step = step;
  seconds.forward = forward;
  seconds.communication = communication;
  seconds.data_wait = data_wait;
  return seconds;
}

// Two ranks and four steps: rank 1 computes longer, rank 0 waits for it; rank 0's disk is slow once.
TestFigures two_ranks() {
  const std::vector<StepSeconds> first = {seconds_of(0.10, 0.04, 0.05, 0.001), seconds_of(0.12, 0.05, 0.06, 0.009),
                                          seconds_of(0.10, 0.04, 0.05, 0.001), seconds_of(0.16, 0.04, 0.11, 0.001)};
  const std::vector<StepSeconds> second = {seconds_of(0.10, 0.08, 0.01, 0.002), seconds_of(0.12, 0.09, 0.01, 0.002),
                                           seconds_of(0.10, 0.08, 0.01, 0.002), seconds_of(0.16, 0.14, 0.01, 0.002)};
  std::vector<StepSeconds> slowest = first;
  for (size_t step = 0; step < slowest.size(); ++step) {
    for (const auto& [name, part] : kStepParts) {
      slowest[step].*part = std::max(slowest[step].*part, second[step].*part);
    }
  }
  return test_figures(slowest, {part_medians(first), part_medians(second)}, {8, 8, 8, 8});
}

Json some_ranks() {
  Json ranks = Json::array();
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back({{"rank", rank},
                     {"memory",
                      {{"peak", {{"parameters", 3 << 20}, {"untagged", 0}}},
                       {"total_peak", (4 + rank) << 20},
                       {"process_start", 48 << 20},
                       {"process_peak", 64 << 20},
                       {"allocator_peak", 0}}}});
  }
  return ranks;
}

class CounterFolder {
 public:
  CounterFolder() { fs::create_directories(path_); }
  ~CounterFolder() { fs::remove_all(path_); }
  CounterFolder(const CounterFolder&) = delete;
  CounterFolder& operator=(const CounterFolder&) = delete;
  void set(const std::string& zone, const std::string& name, int64_t microjoules) const {
    fs::create_directories(path_ / zone);
    std::ofstream(path_ / zone / "name") << name << '\n';
    std::ofstream(path_ / zone / "energy_uj") << microjoules << '\n';
    std::ofstream(path_ / zone / "max_energy_range_uj") << 1000000 << '\n';
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_ = fs::temp_directory_path() / str("vit_hybrid_test_counters_", getpid());
};

}  // namespace

TEST_CASE("step test: minimum, median, mean and standard deviation of 1 .. n") {
  for (const int n : {1, 2, 3, 10, 45}) {
    std::vector<double> values(static_cast<size_t>(n));
    std::iota(values.rbegin(), values.rend(), 1.0);
    const Spread spread = spread_of(values);
    CHECK(spread.min == 1.0);
    CHECK(spread.median == 0.5 * (n + 1));
    CHECK(spread.mean == Approx(0.5 * (n + 1)).epsilon(1e-15));
    CHECK(spread.deviation == Approx(std::sqrt(n * (n + 1) / 12.0 * (n > 1 ? 1 : 0))).epsilon(1e-14));
  }
  CHECK_THROWS_AS(spread_of({}), Error);
}

TEST_CASE("step test: a fifth of the steps warm up, five at most, and one is always measured") {
  const std::vector<std::pair<int64_t, int64_t>> cases = {{1, 0}, {2, 1}, {9, 1}, {10, 2}, {24, 4}, {50, 5}, {1000, 5}};
  for (const auto& [steps, warm_up] : cases) {
    CHECK(warm_up_steps(steps) == warm_up);
  }
}

TEST_CASE("step test: the slowest rank counts in each step") {
  const TestFigures figures = two_ranks();
  const auto part = [&](const char* name) {
    for (size_t i = 0; i < kStepParts.size(); ++i) {
      if (std::string(kStepParts[i].first) == name) return figures.parts[i];
    }
    FAIL("no part ", name);
    return PartFigures{};
  };
  CHECK(figures.steps == 4);
  CHECK(part("step").seconds.median == Approx(0.11));
  CHECK(part("step").seconds.mean == Approx(0.12));
  CHECK(part("forward").seconds.min == Approx(0.08));
  CHECK(part("forward").slowest_rank == 1);
  CHECK(part("communication").seconds.median == Approx(0.055));
  CHECK(part("communication").slowest_rank == 0);
  CHECK(part("data_wait").seconds.mean == Approx((3 * 0.002 + 0.009) / 4));
  CHECK(part("data_wait").slowest_rank == 1);  // by the median, though rank 0 has the largest value
  CHECK(figures.data_wait_percent() == Approx(100.0 * 0.00375 / 0.12));
  CHECK(figures.samples_per_second.median == Approx(0.5 * (8 / 0.10 + 8 / 0.12)));
}

TEST_CASE("step test: the record and the text say the same, and what is not known is said") {
  TestFigures figures = two_ranks();
  figures.warm_up = 1;
  figures.packages.watts = 81.25;
  figures.gpus.missing = "no GPU is used";
  const TestedRun run{100, 1000};
  const Json json = to_json(figures, run);
  CHECK(json["kind"] == "test");
  CHECK(json["steps"] == 4);
  CHECK(json["warm_up_steps"] == 1);
  CHECK(json["seconds_spread"]["forward"]["slowest_rank"] == 1);
  CHECK(json["whole_epoch"]["duration"].get<double>() == Approx(12.0));
  CHECK(json["whole_training"]["duration"].get<double>() == Approx(120.0));
  CHECK(json["power"]["processors"]["watts"] == 81.25);
  CHECK(json["power"]["gpus"]["watts"].is_null());
  CHECK(json["power"]["gpus"]["missing"] == "no GPU is used");
  const std::string text = join(test_lines(figures, run, some_ranks()), "\n");
  for (const char* expected :
       {"test of 4 steps, after 1 that warm up", "  step              100.000    110.000     28.284", "power: 81.2 W",
        "power: not available here (GPUs of all ranks: no GPU is used)",
        "an epoch: 100 steps, 12.00 s, without checkpoints",
        "the whole training: 1000 steps, 2.0 min, without checkpoints", "5.0"}) {
    CHECK_MESSAGE(contains(text, expected), expected, " in\n", text);
  }
  CHECK_FALSE(json.contains("validation"));
}

TEST_CASE("step test: validations count in an epoch and in the training, one of them before the first epoch") {
  const TestedRun run{100, 950, {20, 50, 8.0}};
  const Json json = to_json(two_ranks(), run);
  CHECK(json["validation"]["whole_seconds"] == 20.0);
  CHECK(json["whole_epoch"]["duration"].get<double>() == Approx(12.0 + 20.0));
  CHECK(json["whole_training"]["duration"].get<double>() == Approx(114.0 + 11 * 20.0));
  const std::string text = join(test_lines(two_ranks(), run, some_ranks()), "\n");
  for (const char* expected : {"a validation: 50 batches, 20.00 s, by 20 of them",
                               "an epoch: 100 steps and 1 validation, 32.00 s, without checkpoints",
                               "the whole training: 950 steps and 11 validations, 5.6 min, without checkpoints"}) {
    CHECK_MESSAGE(contains(text, expected), expected, " in\n", text);
  }
}

TEST_CASE("step test: packages' energy counters are added, wrap around, and nothing else counts") {
  const CounterFolder folder;
  folder.set("intel-rapl:0", "package-0", 999000);
  folder.set("intel-rapl:1", "package-1", 10);
  folder.set("intel-rapl:0:0", "core", 5);
  folder.set("intel-rapl:2", "psys", 7);
  PackageEnergyMeter meter(folder.path());
  CHECK(meter.read().joules == 0.0);
  folder.set("intel-rapl:0", "package-0", 1000);  // past its range of 1 J
  folder.set("intel-rapl:1", "package-1", 500010);
  folder.set("intel-rapl:2", "psys", 900000);
  CHECK(meter.read().joules.value() == Approx(0.502));
  CHECK(meter.read().joules.value() == Approx(0.502));
  fs::remove(folder.path() + "/intel-rapl:1/energy_uj");
  const Energy gone = meter.read();
  CHECK_FALSE(gone.joules);
  CHECK(contains(gone.missing, "intel-rapl:1/energy_uj is not there"));
}

TEST_CASE("step test: a counter that is none, jumps or would make the program wait is not known, and why") {
  const auto missing_after = [](const std::function<void(const CounterFolder&)>& change) {
    const CounterFolder folder;
    folder.set("intel-rapl:0", "package-0", 400000);
    PackageEnergyMeter meter(folder.path());
    change(folder);
    const Energy energy = meter.read();
    CHECK_FALSE(energy.joules);
    return energy.missing;
  };
  const auto write = [](const CounterFolder& folder, const std::string& text) {
    std::ofstream(folder.path() + "/intel-rapl:0/energy_uj") << text;
  };
  CHECK(contains(missing_after([](const auto& folder) { folder.set("intel-rapl:0", "package-0", 300000); }),
                 "energy_uj jumped from 400000 to 300000"));
  CHECK(contains(missing_after([&](const auto& folder) { write(folder, "-5"); }), "energy_uj holds no counter: '-5'"));
  CHECK(
      contains(missing_after([&](const auto& folder) { write(folder, "1e3"); }), "energy_uj holds no counter: '1e3'"));
  CHECK(contains(missing_after([&](const auto& folder) { write(folder, "9223372036854775807"); }), "holds no counter"));
  CHECK(
      contains(missing_after([&](const auto& folder) { write(folder, "\x1b[31m"); }), "holds no counter: '\\x1b[31m'"));
  CHECK(
      contains(missing_after([&](const auto& folder) { write(folder, std::string(100, '1')); }), "more than 64 bytes"));
  const CounterFolder folder;
  folder.set("intel-rapl:0", "package-0", 1);
  const std::string path = folder.path() + "/intel-rapl:0/energy_uj";
  fs::remove(path);
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK(contains(PackageEnergyMeter(folder.path()).read().missing, "is a FIFO"));
}

TEST_CASE("step test: a machine without counters, or a program without a GPU, says so") {
  const Energy none = PackageEnergyMeter("/nowhere").read();
  CHECK_FALSE(none.joules);
  CHECK(none.missing == "no processor's energy counter in /nowhere");
  const Energy gpu = GpuMeter("").read();
  CHECK_FALSE(gpu.joules);
  CHECK(gpu.missing == "no GPU is used");
}

TEST_CASE("phase clock: on the CPU a phase is over where it ends, also inside another") {
  PhaseClock clock(c10::DeviceType::CPU);
  double outer = 0.0, inner = 0.0;
  {
    const auto whole = clock.measure(outer);
    for (int i = 0; i < 2; ++i) {
      const auto part = clock.measure(inner);
      const Timer timer;
      while (timer.seconds() < 0.004) {
      }
    }
    CHECK(outer == 0.0);
  }
  clock.collect();
  CHECK(inner >= 0.008);
  CHECK(outer >= inner);
}
