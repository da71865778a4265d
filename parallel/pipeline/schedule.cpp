// GPipe, 1F1B and forward-only as lists of actions, the checks of a schedule, and the dynamic programmes of
// partition_stages().
#include "parallel/pipeline/schedule.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "parallel/pipeline/message_plan.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::pipeline {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Sums of the same costs in another order may differ by rounding; within this they are equal.
constexpr double kSlack = 1e-9;

// Best value of a cut of the first units into stages, and where the last of these stages begins.
struct Cell {
  double value = kInfinity;
  int64_t begin = -1;
};

// cells[s][u]: the first u units in s stages. `combine(value, s, begin, end)` is the value when stage s-1 of value
// `value` is followed by a stage of units [begin, end); ties go to the lower begin.
template <class Combine>
std::vector<std::vector<Cell>> solve(int64_t num_units, int num_stages, Combine combine) {
  std::vector cells(static_cast<size_t>(num_stages) + 1, std::vector<Cell>(static_cast<size_t>(num_units) + 1));
  cells[0][0].value = 0.0;
  for (int stage = 1; stage <= num_stages; ++stage) {
    const auto& before = cells[static_cast<size_t>(stage) - 1];
    for (int64_t end = stage; end <= num_units; ++end) {
      Cell& cell = cells[static_cast<size_t>(stage)][static_cast<size_t>(end)];
      for (int64_t begin = stage - 1; begin < end; ++begin) {
        const double value = combine(before[static_cast<size_t>(begin)].value, stage, begin, end);
        if (value < cell.value) {
          cell = {value, begin};
        }
      }
    }
  }
  return cells;
}

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

std::vector<Range> partition_stages(const std::vector<double>& costs, int num_stages) {
  const auto num_units = static_cast<int64_t>(costs.size());
  if (num_stages < 1 || num_stages > num_units) {
    throw Error(ErrorClass::kUsage,
                str("the pipeline cannot have ", num_stages, " stages: the model has ", num_units,
                    " layers to cut between, and every stage needs one; allowed: 1 to ", num_units),
                "choose a smaller --pp, or a deeper model");
  }
  std::vector<double> sums(costs.size() + 1, 0.0);
  for (size_t i = 0; i < costs.size(); ++i) {
    VH_ASSERT(costs[i] >= 0.0, str("cost of unit ", i, " is ", costs[i]));
    sums[i + 1] = sums[i] + costs[i];
  }
  const auto cost = [&sums](int64_t begin, int64_t end) {
    return sums[static_cast<size_t>(end)] - sums[static_cast<size_t>(begin)];
  };
  const auto last = static_cast<size_t>(num_stages);
  const auto largest = solve(num_units, num_stages, [&](double value, int, int64_t begin, int64_t end) {
    return std::max(value, cost(begin, end));
  });
  const double allowed = largest[last][costs.size()].value + kSlack * sums.back();
  const Partition even(num_units, num_stages);
  const auto nearest = solve(num_units, num_stages, [&](double value, int stage, int64_t begin, int64_t end) {
    const double distance = static_cast<double>(std::abs(end - even.part(stage - 1).end));
    return cost(begin, end) <= allowed ? value + distance : kInfinity;
  });
  std::vector<Range> stages(last);
  int64_t end = num_units;
  for (size_t stage = last; stage > 0; --stage) {
    stages[stage - 1] = {nearest[stage][static_cast<size_t>(end)].begin, end};
    end = stages[stage - 1].begin;
  }
  return stages;
}

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
  report.at_backwards = held_at_backwards(plan);
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
