// Which messages (sends and receives) a schedule needs, and when each of its actions happens.
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace vit_hybrid::pipeline {

/// An action and the time from which and up to which it runs.
struct TimedAction {
  Action action;
  double start;
  double finish;
};

/// By rank, in the order of the schedule, where an action takes `duration(action)` and a message between ranks
/// `message_time`; messages are buffered, so only receives wait. Throws Error(kInternal) that names the first action of
/// a rank that can never start.
std::vector<std::vector<TimedAction>> time_actions(const Schedule& schedule,
                                                   const std::function<double(const Action& action)>& duration,
                                                   double message_time);
/// The same of equal actions, without time for messages.
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

/// The activation (forward) or gradient (backward) that `product` computed, on its way to the neighbouring stage.
struct Message {
  enum class Direction { kSend, kReceive };
  Action product;       ///< the action whose result it carries
  Direction direction;  ///< as this rank sees it
  int peer;             ///< the other pipeline rank
};

/// Messages of one pair of ranks that go in one call of Communicator::exchange.
using MessageGroup = std::vector<Message>;

/// What a rank does next: compute, or start an exchange (and go on; only the action that needs a message waits for it).
using PlanStep = std::variant<Action, MessageGroup>;

/// By pipeline rank. Where consecutive stages lie on one rank there is no message.
using MessagePlan = std::vector<std::vector<PlanStep>>;

/// All exchanges of the pipeline lie in one global order, that of the simulated times at which their messages are
/// computed; each rank starts its own in this order. So no cycle of ranks can wait for each other, not even when every
/// send blocks until it is received and a communicator runs one exchange after the other (NCCL). Messages of a pair
/// that are computed at the same time (1F1B: an activation down, a gradient up) share an exchange. An exchange that
/// only receives is started one action earlier where no other exchange lies between.
MessagePlan plan_messages(const Schedule& schedule);

/// By rank and backward, of ranks of one stage; received is what comes in exchanges that were started before.
std::vector<std::vector<HeldAtBackward>> held_at_backwards(const MessagePlan& plan);

/// Runs the plan with rendezvous semantics: an exchange ends only when both ends of each of its messages have been
/// reached, and a rank stands still until then. Throws Error(kInternal) that names what each rank waits for.
void check_rendezvous(const Schedule& schedule, const MessagePlan& plan);

}  // namespace vit_hybrid::pipeline
