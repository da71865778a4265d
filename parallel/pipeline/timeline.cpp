// Simulates a schedule in time, and prints it as a grid.
#include "parallel/pipeline/timeline.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::pipeline {

namespace {

using Finished = ActionTable<std::optional<double>>;

// When the inputs of `action` are there; nothing while one of them is missing.
std::optional<double> inputs_ready(const Schedule& schedule, const Finished& finished, const Action& action) {
  const auto [kind, stage, micro_batch] = action;
  if (kind == ActionKind::kForward) {
    return stage == 0 ? 0.0 : finished[{kind, stage - 1, micro_batch}];
  }
  const auto own = finished[{ActionKind::kForward, stage, micro_batch}];
  if (stage == schedule.num_stages - 1) {
    return own;
  }
  const auto next = finished[{kind, stage + 1, micro_batch}];
  return own && next ? std::optional(std::max(*own, *next)) : std::nullopt;
}

[[noreturn]] void fail_deadlock(const Schedule& schedule, const std::vector<std::vector<TimedAction>>& done) {
  std::vector<std::string> waiting;
  for (size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    const size_t next = done[rank].size();
    if (next < schedule.actions[rank].size()) {
      waiting.push_back(str("rank ", rank, " before the ", describe(schedule.actions[rank][next])));
    }
  }
  throw Error(ErrorClass::kInternal, str("schedule ", schedule.name, ": deadlock: ", join(waiting, "; ")));
}

}  // namespace

std::string describe(const Action& action) {
  const char* kind = action.kind == ActionKind::kForward ? "forward" : "backward";
  return str(kind, " of micro-batch ", action.micro_batch, " through stage ", action.stage);
}

std::vector<std::vector<TimedAction>> time_actions(const Schedule& schedule, double forward_time,
                                                   double backward_time) {
  const size_t num_ranks = schedule.actions.size();
  std::vector<std::vector<TimedAction>> timeline(num_ranks);
  Finished finished(schedule, std::nullopt);
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t rank = 0; rank < num_ranks; ++rank) {
      const auto& actions = schedule.actions[rank];
      auto& done = timeline[rank];
      while (done.size() < actions.size()) {
        const Action& action = actions[done.size()];
        const auto ready = inputs_ready(schedule, finished, action);
        if (!ready) {
          break;
        }
        const double start = std::max(*ready, done.empty() ? 0.0 : done.back().finish);
        const double finish = start + (action.kind == ActionKind::kForward ? forward_time : backward_time);
        finished[action] = finish;
        done.push_back({action, start, finish});
        progress = true;
      }
    }
  }
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    if (timeline[rank].size() < schedule.actions[rank].size()) {
      fail_deadlock(schedule, timeline);
    }
  }
  return timeline;
}

std::string to_grid(const Schedule& schedule) {
  const auto timeline = time_actions(schedule, 1.0, 2.0);
  size_t columns = 0;
  for (const auto& row : timeline) {
    columns = std::max(columns, row.empty() ? 0 : static_cast<size_t>(std::lround(row.back().finish)));
  }
  const size_t width = str("F", std::max(schedule.num_micro_batches - 1, 0)).size();
  std::ostringstream out;
  for (size_t rank = 0; rank < timeline.size(); ++rank) {
    std::vector<std::string> cells(columns, ".");
    for (const auto& [action, start, finish] : timeline[rank]) {
      for (auto column = std::lround(start); column < std::lround(finish); ++column) {
        cells[static_cast<size_t>(column)] = str(action.kind == ActionKind::kForward ? "F" : "B", action.micro_batch);
      }
    }
    out << "rank " << rank << ":";
    size_t padding = 1;
    for (const auto& cell : cells) {
      out << std::string(padding, ' ') << cell;
      padding = 1 + width - std::min(width, cell.size());
    }
    out << '\n';
  }
  return out.str();
}

}  // namespace vit_hybrid::pipeline
