// Checks a schedule: every action once, in order, on its rank; no deadlock, buffered or by rendezvous.
#include <algorithm>
#include <string>

#include "parallel/pipeline/message_plan.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/timeline.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::pipeline {

namespace {

[[noreturn]] void fail(const Schedule& schedule, const std::string& what) {
  throw Error(ErrorClass::kInternal, str("schedule ", schedule.name, ": ", what));
}

void check_shape(const Schedule& schedule) {
  if (schedule.num_stages < 1 || schedule.num_micro_batches < 0 || schedule.num_ranks() < 1 ||
      schedule.rank_of_stage.size() != static_cast<size_t>(schedule.num_stages)) {
    fail(schedule, str(schedule.num_stages, " stages, ", schedule.rank_of_stage.size(), " of them with a rank, ",
                       schedule.num_micro_batches, " micro-batches, ", schedule.num_ranks(), " ranks"));
  }
  for (const int rank : schedule.rank_of_stage) {
    if (rank < 0 || rank >= schedule.num_ranks()) {
      fail(schedule, str("a stage lies on rank ", rank, " of ", schedule.num_ranks()));
    }
  }
}

void check_place(const Schedule& schedule, int rank, const Action& action) {
  const bool in_range = action.stage >= 0 && action.stage < schedule.num_stages && action.micro_batch >= 0 &&
                        action.micro_batch < schedule.num_micro_batches;
  if (!in_range) {
    fail(schedule, str("rank ", rank, " has a ", describe(action), ", which does not exist"));
  }
  if (schedule.rank_of_stage[static_cast<size_t>(action.stage)] != rank) {
    fail(schedule, str("rank ", rank, " has the ", describe(action), ", which belongs to another rank"));
  }
}

// Micro-batches pass a stage in ascending order: receivers rely on it, and so does the order of sums.
void check_actions(const Schedule& schedule) {
  ActionTable<char> seen(schedule, false);
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    for (const Action& action : schedule.actions[static_cast<size_t>(rank)]) {
      check_place(schedule, rank, action);
      if (seen[action]) {
        fail(schedule, str("rank ", rank, " has the ", describe(action), " twice"));
      }
      if (action.micro_batch > 0 && !seen[{action.kind, action.stage, action.micro_batch - 1}]) {
        fail(schedule, str("rank ", rank, " has the ", describe(action), " before that of the micro-batch before it"));
      }
      if (action.kind == ActionKind::kBackward && !seen[{ActionKind::kForward, action.stage, action.micro_batch}]) {
        fail(schedule, str("rank ", rank, " has the ", describe(action), " before its forward"));
      }
      seen[action] = true;
    }
  }
  const bool trains = has_backward(schedule);
  for (int stage = 0; stage < schedule.num_stages; ++stage) {
    for (int m = 0; m < schedule.num_micro_batches; ++m) {
      for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
        const Action action{kind, stage, m};
        if (!seen[action] && (trains || kind == ActionKind::kForward)) {
          fail(schedule, str("the ", describe(action), " is missing"));
        }
      }
    }
  }
}

// Backwards free what forwards keep; without backwards a forward keeps nothing.
int peak_in_flight(const Schedule& schedule, const std::vector<Action>& actions) {
  int in_flight = 0;
  int peak = 0;
  for (const Action& action : actions) {
    in_flight += action.kind == ActionKind::kForward ? 1 : -1;
    peak = std::max(peak, in_flight);
  }
  return has_backward(schedule) ? peak : std::min(peak, 1);
}

}  // namespace

bool has_backward(const Schedule& schedule) {
  return std::any_of(schedule.actions.begin(), schedule.actions.end(), [](const auto& actions) {
    return std::any_of(actions.begin(), actions.end(),
                       [](const Action& action) { return action.kind == ActionKind::kBackward; });
  });
}

ScheduleReport check_schedule(const Schedule& schedule, double forward_time, double backward_time) {
  check_shape(schedule);
  check_actions(schedule);
  const auto timeline = time_actions(schedule, forward_time, backward_time);
  const MessagePlan plan = plan_messages(schedule);
  check_rendezvous(schedule, plan);

  ScheduleReport report;
  report.peak_received_early = peak_received_early(schedule, plan);
  double busy = 0;
  for (size_t rank = 0; rank < timeline.size(); ++rank) {
    for (const TimedAction& action : timeline[rank]) {
      busy += action.finish - action.start;
      report.makespan = std::max(report.makespan, action.finish);
    }
    report.peak_in_flight.push_back(peak_in_flight(schedule, schedule.actions[rank]));
  }
  if (report.makespan > 0) {
    report.bubble_fraction = 1.0 - busy / (report.makespan * schedule.num_ranks());
  }
  return report;
}

}  // namespace vit_hybrid::pipeline
