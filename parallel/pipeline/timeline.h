// Timeline: when each action of a schedule runs if only its inputs and its rank's earlier actions hold it back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace vit_hybrid::pipeline {

/// An action and the time from which and up to which it runs.
struct TimedAction {
  Action action;
  double start;
  double finish;
};

/// By rank, in the order of the schedule. Messages take no time and are buffered, so only receives wait. Throws
/// Error(kInternal) that names the first action of a rank that can never start.
std::vector<std::vector<TimedAction>> time_actions(const Schedule& schedule, double forward_time, double backward_time);

/// An action in messages: "forward of micro-batch 3 through stage 1".
std::string describe(const Action& action);

/// A table by (kind, stage, micro-batch) of a schedule.
template <class Value>
class ActionTable {
 public:
  ActionTable(const Schedule& schedule, Value initial)
      : num_stages_(schedule.num_stages),
        num_micro_batches_(schedule.num_micro_batches),
        values_(static_cast<size_t>(2 * num_stages_ * num_micro_batches_), initial) {}

  Value& operator[](const Action& action) { return values_[index(action)]; }
  const Value& operator[](const Action& action) const { return values_[index(action)]; }

 private:
  size_t index(const Action& action) const {
    const int row = (action.kind == ActionKind::kForward ? 0 : num_stages_) + action.stage;
    return static_cast<size_t>(row * num_micro_batches_ + action.micro_batch);
  }

  int num_stages_;
  int num_micro_batches_;
  std::vector<Value> values_;
};

}  // namespace vit_hybrid::pipeline
