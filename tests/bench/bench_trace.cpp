// What tracing costs: nanoseconds of each place that would record, with nobody listening and while it is recorded; and
// what it costs to know who is slow: nanoseconds of a step and of a wait.
//
//   bench_trace [EVENTS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <vector>

#include "parallel/comm/operation.h"
#include "parallel/comm/statistics.h"
#include "src/base/host.h"
#include "src/base/timer.h"
#include "src/base/trace.h"
#include "src/report/stragglers.h"

namespace vit_hybrid {
namespace {

constexpr int kRounds = 9;

// The median of the rounds.
double nanoseconds(int64_t events, const std::function<void()>& place) {
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const Timer timer;
    for (int64_t i = 0; i < events; ++i) {
      place();
    }
    rounds.push_back(timer.seconds() * 1e9 / static_cast<double>(events));
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

void run(int64_t events) {
  const comm::OperationNote note{"data", "all_reduce", 4096, 17, {12, "backward"}};
  const std::vector<std::pair<const char*, std::function<void()>>> places = {
      {"a slice (trace::Scope)", [] { const trace::Scope slice({.name = "forward", .micro_batch = 3, .stage = 1}); }},
      {"a phase (comm::PhaseScope)", [] { const comm::PhaseScope phase("forward", 3, 1); }},
      {"a wait (comm::BlockedScope)", [&] { const comm::BlockedScope blocked(note); }},
  };
  std::printf("%-30s %12s %12s\n", "nanoseconds of", "off", "recorded");
  for (const auto& [name, place] : places) {
    const double off = nanoseconds(events, place);
    trace::start_recording(static_cast<size_t>(events) * kRounds);
    const double on = nanoseconds(events, place);
    trace::stop_recording();
    std::printf("%-30s %12.1f %12.1f\n", name, off, on);
  }
}

void run_stragglers(int64_t events) {
  train::StragglerWatch watch;
  train::WatchedStep step{1, 0.1, {0.0, 0.03, 0.06, 0.001, 0.002, 0.001}, 8.0, 4, {0.0, 0.12, 0.24}, 32.0};
  double sum = 0.0;
  const std::vector<std::pair<const char*, std::function<void()>>> places = {
      {"a step's own work", [&] { sum += train::own_work({}, train::Waits::now(), train::Waits::now())[1]; }},
      {"a step's watch", [&] { sum += watch.add(step) ? 1.0 : 0.0; }},
      {"a wait's count",
       [&] {
         comm::add_blocked_seconds("data", {"backward", 1e-9, seconds_without_core()});
       }},
  };
  for (const char* phase : {"forward", "backward", "gradient reduction", "optimizer", ""}) {
    comm::add_blocked_seconds("data", {phase, 1e-3});
  }
  const auto measure = [&] {
    std::vector<double> figures;
    std::transform(places.begin(), places.end(), std::back_inserter(figures),
                   [&](const auto& place) { return nanoseconds(events, place.second); });
    return figures;
  };
  const std::vector<double> plain = measure();
  count_seconds_without_core();
  const std::vector<double> shared = measure();
  std::printf("\n%-30s %12s %12s\n", "nanoseconds of", "own cores", "shared cores");
  for (size_t i = 0; i < places.size(); ++i) {
    std::printf("%-30s %12.1f %12.1f\n", places[i].first, plain[i], shared[i]);
  }
}

}  // namespace
}  // namespace vit_hybrid

int main(int argc, char** argv) {
  const int64_t events = argc > 1 ? std::atoll(argv[1]) : 100'000;
  vit_hybrid::run(events);
  vit_hybrid::run_stragglers(events);
  return 0;
}
