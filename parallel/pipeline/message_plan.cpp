// Simulates a schedule in time, prints it as a grid, and pairs its messages.
#include "parallel/pipeline/message_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::pipeline {

namespace {

using Finished = ActionTable<std::optional<double>>;

// When the inputs of `action` are there; nothing while one of them is missing.
std::optional<double> inputs_ready(const Schedule& schedule, const Finished& finished, const Action& action,
                                   double message_time = 0.0) {
  const auto [kind, stage, micro_batch] = action;
  const auto arrived = [&, own_stage = stage](const Action& producer) {
    const auto done = finished[producer];
    const auto rank_of = [&](int of) { return schedule.rank_of_stage[static_cast<size_t>(of)]; };
    return done && rank_of(producer.stage) != rank_of(own_stage) ? std::optional(*done + message_time) : done;
  };
  if (kind == ActionKind::kForward) {
    return stage == 0 ? 0.0 : arrived({kind, stage - 1, micro_batch});
  }
  const auto own = finished[{ActionKind::kForward, stage, micro_batch}];
  if (stage == schedule.num_stages - 1) {
    return own;
  }
  const auto next = arrived({kind, stage + 1, micro_batch});
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

constexpr double kForwardTime = 1.0;
constexpr double kBackwardTime = 2.0;

// The stage that needs the result of an action, or -1.
int consumer_stage(const Schedule& schedule, const Action& action) {
  if (action.kind == ActionKind::kForward) {
    return action.stage + 1 < schedule.num_stages ? action.stage + 1 : -1;
  }
  return action.stage - 1;
}

// Place of an exchange in the global order. Of the exchanges of one time, those at even boundaries of stages come
// first: all ranks are busy in each of the two rounds, where 0-1, 1-2, 2-3, ... would pass through them one by one.
using ExchangeKey = std::tuple<double, int, int>;  // time, parity of the boundary, boundary

ExchangeKey exchange_key(const TimedAction& producer, int consumer) {
  const int boundary = std::min(producer.action.stage, consumer);
  return {producer.finish, boundary % 2, boundary};
}

// A rank's steps with the place of each: at the same time, exchanges come before the actions that start then.
struct RankSteps {
  std::vector<std::pair<ExchangeKey, Message>> messages;
  std::vector<TimedAction> actions;
};

std::vector<PlanStep> merge(RankSteps steps) {
  std::stable_sort(steps.messages.begin(), steps.messages.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<PlanStep> merged;
  auto message = steps.messages.begin();
  const auto merge_until = [&](double time) {
    while (message != steps.messages.end() && std::get<0>(message->first) <= time) {
      MessageGroup group;
      for (const ExchangeKey key = message->first; message != steps.messages.end() && message->first == key;
           ++message) {
        group.push_back(message->second);
      }
      merged.emplace_back(std::move(group));
    }
  };
  for (const auto& [action, start, finish] : steps.actions) {
    merge_until(start);
    merged.emplace_back(action);
  }
  merge_until(std::numeric_limits<double>::infinity());
  return merged;
}

bool only_receives(const PlanStep& step) {
  const auto* group = std::get_if<MessageGroup>(&step);
  return group != nullptr && std::all_of(group->begin(), group->end(), [](const Message& message) {
           return message.direction == Message::Direction::kReceive;
         });
}

// The order among the exchanges of a rank stays, so what was free of deadlock stays so: the action passed over has sent
// nothing yet, and nobody can be waiting for it.
void start_receives_early(std::vector<PlanStep>& steps) {
  for (size_t i = 1; i < steps.size(); ++i) {
    if (only_receives(steps[i]) && std::holds_alternative<Action>(steps[i - 1])) {
      std::swap(steps[i], steps[i - 1]);
    }
  }
}

std::vector<HeldAtBackward> held_at_backwards(const std::vector<PlanStep>& steps) {
  std::vector<HeldAtBackward> moments;
  std::vector<Action> received;  // whose results wait for their action
  int begun = 0;
  for (const PlanStep& step : steps) {
    if (const auto* group = std::get_if<MessageGroup>(&step)) {
      for (const Message& message : *group) {
        if (message.direction == Message::Direction::kReceive) {
          received.push_back(message.product);
        }
      }
      continue;
    }
    const Action& action = std::get<Action>(step);
    std::erase_if(received, [&action](const Action& product) {
      return product.kind == action.kind && product.micro_batch == action.micro_batch;
    });
    if (action.kind == ActionKind::kForward) {
      begun = action.micro_batch + 1;
      continue;
    }
    moments.push_back({action.micro_batch, begun, {}});
    for (const Action& product : received) {
      moments.back().received.push_back(product.micro_batch);
    }
  }
  return moments;
}

// The simulation of check_rendezvous().
class Rendezvous {
 public:
  Rendezvous(const Schedule& schedule, const MessagePlan& plan)
      : schedule_(schedule), plan_(plan), next_(plan.size(), 0), sent_(schedule, false), received_(schedule, false) {}

  void run() {
    check_counterparts();
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t rank = 0; rank < plan_.size(); ++rank) {
        while (next_[rank] < plan_[rank].size() && advance(plan_[rank][next_[rank]])) {
          ++next_[rank];
          progress = true;
        }
      }
    }
    for (size_t rank = 0; rank < plan_.size(); ++rank) {
      if (next_[rank] < plan_[rank].size()) {
        fail();
      }
    }
  }

 private:
  // Messages carry no tag: those of one sender and receiver match in the order of their calls.
  void check_counterparts() const {
    std::map<std::pair<int, int>, std::vector<Action>> sends;
    std::map<std::pair<int, int>, std::vector<Action>> receives;
    for (size_t i = 0; i < plan_.size(); ++i) {
      const int rank = static_cast<int>(i);
      for (const PlanStep& step : plan_[i]) {
        if (const auto* group = std::get_if<MessageGroup>(&step)) {
          for (const Message& message : *group) {
            const bool is_send = message.direction == Message::Direction::kSend;
            (is_send ? sends[{rank, message.peer}] : receives[{message.peer, rank}]).push_back(message.product);
          }
        }
      }
    }
    if (sends != receives) {
      throw Error(ErrorClass::kInternal, str("schedule ", schedule_.name, ": a message has no counterpart"));
    }
  }

  // Marks this rank's ends of the messages as reached; true if the step is over.
  bool advance(const PlanStep& step) {
    const auto* group = std::get_if<MessageGroup>(&step);
    if (group == nullptr) {
      return inputs_arrived(std::get<Action>(step));
    }
    bool complete = true;
    for (const Message& message : *group) {
      const bool sends = message.direction == Message::Direction::kSend;
      (sends ? sent_ : received_)[message.product] = true;
      complete = complete && (sends ? received_ : sent_)[message.product];
    }
    return complete;
  }

  // The exchanges of the inputs come before the action (they are over when it is reached).
  bool inputs_arrived(const Action& action) const {
    const bool forward = action.kind == ActionKind::kForward;
    const int producer = action.stage + (forward ? -1 : 1);
    if (producer < 0 || producer >= schedule_.num_stages || rank_of(producer) == rank_of(action.stage)) {
      return true;
    }
    return received_[{action.kind, producer, action.micro_batch}];
  }

  int rank_of(int stage) const { return schedule_.rank_of_stage[static_cast<size_t>(stage)]; }

  [[noreturn]] void fail() const {
    std::vector<std::string> waiting;
    for (size_t rank = 0; rank < plan_.size(); ++rank) {
      if (next_[rank] >= plan_[rank].size()) {
        continue;
      }
      const PlanStep& step = plan_[rank][next_[rank]];
      const auto* group = std::get_if<MessageGroup>(&step);
      const Action& action = group == nullptr ? std::get<Action>(step) : group->front().product;
      waiting.push_back(
          str("rank ", rank, group == nullptr ? " before the " : " exchanging the result of the ", describe(action)));
    }
    throw Error(ErrorClass::kInternal,
                str("schedule ", schedule_.name, ": its messages deadlock: ", join(waiting, "; ")));
  }

  const Schedule& schedule_;
  const MessagePlan& plan_;
  std::vector<size_t> next_;
  ActionTable<char> sent_;
  ActionTable<char> received_;
};

}  // namespace

std::string describe(const Action& action) {
  const char* kind = action.kind == ActionKind::kForward ? "forward" : "backward";
  return str(kind, " of micro-batch ", action.micro_batch, " through stage ", action.stage);
}

std::vector<std::vector<TimedAction>> time_actions(const Schedule& schedule,
                                                   const std::function<double(const Action& action)>& duration,
                                                   double message_time) {
  const size_t num_ranks = schedule.actions.size();
  std::vector<std::vector<TimedAction>> timeline(num_ranks);
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    timeline[rank].reserve(schedule.actions[rank].size());
  }
  Finished finished(schedule, std::nullopt);
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t rank = 0; rank < num_ranks; ++rank) {
      const auto& actions = schedule.actions[rank];
      auto& done = timeline[rank];
      while (done.size() < actions.size()) {
        const Action& action = actions[done.size()];
        const auto ready = inputs_ready(schedule, finished, action, message_time);
        if (!ready) {
          break;
        }
        const double start = std::max(*ready, done.empty() ? 0.0 : done.back().finish);
        const double finish = start + duration(action);
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

std::vector<std::vector<TimedAction>> time_actions(const Schedule& schedule, double forward_time,
                                                   double backward_time) {
  const auto duration = [=](const Action& action) {
    return action.kind == ActionKind::kForward ? forward_time : backward_time;
  };
  return time_actions(schedule, duration, 0.0);
}

std::string to_grid(const Schedule& schedule) {
  const auto timeline = time_actions(schedule, 1.0, 2.0);
  size_t columns = 0;
  for (const auto& row : timeline) {
    columns = std::max(columns, row.empty() ? 0 : static_cast<size_t>(std::lround(row.back().finish)));
  }
  // A column is a space and a cell.
  const size_t width = str(" F", std::max(schedule.num_micro_batches - 1, 0)).size();
  std::string grid;
  for (size_t rank = 0; rank < timeline.size(); ++rank) {
    grid += str("rank ", rank, ":");
    const size_t row = grid.size();
    grid.append(columns * width, ' ');
    const auto put = [&](size_t column, std::string_view cell) {
      cell.copy(&grid[row + column * width + 1], cell.size());
    };
    for (size_t column = 0; column < columns; ++column) {
      put(column, ".");
    }
    for (const auto& [action, start, finish] : timeline[rank]) {
      // Not str(), whose stream takes longer than all the rest for a million micro-batches.
      const std::string cell = (action.kind == ActionKind::kForward ? 'F' : 'B') + std::to_string(action.micro_batch);
      for (auto column = std::lround(start); column < std::lround(finish); ++column) {
        put(static_cast<size_t>(column), cell);
      }
    }
    grid.resize(grid.find_last_not_of(' ') + 1);
    grid += '\n';
  }
  return grid;
}

MessagePlan plan_messages(const Schedule& schedule) {
  std::vector<RankSteps> steps(schedule.actions.size());
  const auto timeline = time_actions(schedule, kForwardTime, kBackwardTime);
  for (size_t rank = 0; rank < timeline.size(); ++rank) {
    steps[rank].actions = timeline[rank];
    for (const TimedAction& producer : timeline[rank]) {
      const int stage = consumer_stage(schedule, producer.action);
      const int sender = static_cast<int>(rank);
      const int receiver = stage < 0 ? sender : schedule.rank_of_stage[static_cast<size_t>(stage)];
      if (receiver == sender) {
        continue;
      }
      const ExchangeKey key = exchange_key(producer, stage);
      steps[rank].messages.push_back({key, {producer.action, Message::Direction::kSend, receiver}});
      steps[static_cast<size_t>(receiver)].messages.push_back(
          {key, {producer.action, Message::Direction::kReceive, sender}});
    }
  }
  MessagePlan plan;
  for (RankSteps& rank_steps : steps) {
    plan.push_back(merge(std::move(rank_steps)));
    start_receives_early(plan.back());
  }
  return plan;
}

std::vector<std::vector<HeldAtBackward>> held_at_backwards(const MessagePlan& plan) {
  std::vector<std::vector<HeldAtBackward>> held;
  for (const auto& steps : plan) {
    held.push_back(held_at_backwards(steps));
  }
  return held;
}

void check_rendezvous(const Schedule& schedule, const MessagePlan& plan) {
  Rendezvous(schedule, plan).run();
}

}  // namespace vit_hybrid::pipeline
