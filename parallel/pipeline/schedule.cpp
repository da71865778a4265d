// Makes the schedules: GPipe, 1F1B, forward only.
#include "parallel/pipeline/schedule.h"

#include <algorithm>
#include <numeric>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::pipeline {

namespace {

// One stage a rank, no actions yet.
Schedule empty_schedule(const char* name, int num_ranks, int num_micro_batches) {
  VH_ASSERT(num_ranks >= 1 && num_micro_batches >= 0,
            str(name, ": ", num_ranks, " ranks, ", num_micro_batches, " micro-batches"));
  Schedule schedule;
  schedule.name = name;
  schedule.num_stages = num_ranks;
  schedule.num_micro_batches = num_micro_batches;
  schedule.rank_of_stage.resize(static_cast<size_t>(num_ranks));
  std::iota(schedule.rank_of_stage.begin(), schedule.rank_of_stage.end(), 0);
  schedule.actions.resize(static_cast<size_t>(num_ranks));
  return schedule;
}

}  // namespace

Schedule make_gpipe(int num_ranks, int num_micro_batches) {
  Schedule schedule = make_forward_only(num_ranks, num_micro_batches);
  schedule.name = "gpipe";
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (int m = 0; m < num_micro_batches; ++m) {
      schedule.actions[static_cast<size_t>(rank)].push_back({ActionKind::kBackward, rank, m});
    }
  }
  return schedule;
}

Schedule make_1f1b(int num_ranks, int num_micro_batches) {
  Schedule schedule = empty_schedule("1f1b", num_ranks, num_micro_batches);
  for (int rank = 0; rank < num_ranks; ++rank) {
    auto& actions = schedule.actions[static_cast<size_t>(rank)];
    const int warm_up = std::min(num_ranks - rank - 1, num_micro_batches);
    for (int m = 0; m < warm_up; ++m) {
      actions.push_back({ActionKind::kForward, rank, m});
    }
    for (int m = warm_up; m < num_micro_batches; ++m) {  // steady state
      actions.push_back({ActionKind::kForward, rank, m});
      actions.push_back({ActionKind::kBackward, rank, m - warm_up});
    }
    for (int m = num_micro_batches - warm_up; m < num_micro_batches; ++m) {  // cool-down
      actions.push_back({ActionKind::kBackward, rank, m});
    }
  }
  return schedule;
}

Schedule make_forward_only(int num_ranks, int num_micro_batches) {
  Schedule schedule = empty_schedule("forward_only", num_ranks, num_micro_batches);
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (int m = 0; m < num_micro_batches; ++m) {
      schedule.actions[static_cast<size_t>(rank)].push_back({ActionKind::kForward, rank, m});
    }
  }
  return schedule;
}

Schedule make_schedule(const std::string& name, int num_ranks, int num_micro_batches) {
  if (name == "gpipe") {
    return make_gpipe(num_ranks, num_micro_batches);
  }
  if (name == "1f1b") {
    return make_1f1b(num_ranks, num_micro_batches);
  }
  throw Error(ErrorClass::kUsage, str("unknown pipeline schedule '", name, "'; known are: gpipe, 1f1b"));
}

}  // namespace vit_hybrid::pipeline
