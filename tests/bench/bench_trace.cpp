// What tracing costs: nanoseconds of each place that would record, with nobody listening and while it is recorded.
//
//   bench_trace [EVENTS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "parallel/comm/operation.h"
#include "src/base/timer.h"
#include "src/base/trace.h"

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

}  // namespace
}  // namespace vit_hybrid

int main(int argc, char** argv) {
  vit_hybrid::run(argc > 1 ? std::atoll(argv[1]) : 100'000);
  return 0;
}
