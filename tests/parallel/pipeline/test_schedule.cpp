// Schedules against closed forms, grids drawn by hand and a second judge; the cut into stages against exhaustive
// search.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <tuple>

#include "parallel/pipeline/message_plan.h"
#include "parallel/pipeline/schedule.h"
#include "src/base/error.h"
#include "src/base/random.h"
#include "src/base/text.h"

using namespace vit_hybrid;
using namespace vit_hybrid::pipeline;
using ActionKey = std::tuple<ActionKind, int, int>;

namespace {

bool is_executable(const Schedule& schedule) {
  std::set<ActionKey> done;
  std::vector<size_t> next(schedule.actions.size(), 0);
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t rank = 0; rank < next.size(); ++rank) {
      if (next[rank] == schedule.actions[rank].size()) {
        continue;
      }
      const auto [kind, stage, m] = schedule.actions[rank][next[rank]];
      const bool forward = kind == ActionKind::kForward;
      const bool input = forward ? stage == 0 || done.count({kind, stage - 1, m}) == 1
                                 : stage + 1 == schedule.num_stages || done.count({kind, stage + 1, m}) == 1;
      if (input && (forward || done.count({ActionKind::kForward, stage, m}) == 1)) {
        done.insert({kind, stage, m});
        ++next[rank];
        progress = true;
      }
    }
  }
  for (size_t rank = 0; rank < next.size(); ++rank) {
    if (next[rank] != schedule.actions[rank].size()) {
      return false;
    }
  }
  return true;
}

// The judge of the mutation test: compares with the right schedule as multisets, and executes.
bool is_valid(const Schedule& mutant, const Schedule& original) {
  for (size_t rank = 0; rank < original.actions.size(); ++rank) {
    auto ours = mutant.actions[rank];
    auto right = original.actions[rank];
    const auto by_key = [](const Action& a, const Action& b) {
      return ActionKey(a.kind, a.stage, a.micro_batch) < ActionKey(b.kind, b.stage, b.micro_batch);
    };
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
      std::vector<Action> of_kind;
      std::copy_if(ours.begin(), ours.end(), std::back_inserter(of_kind),
                   [kind](const Action& action) { return action.kind == kind; });
      if (!std::is_sorted(of_kind.begin(), of_kind.end(), by_key)) {
        return false;
      }
    }
    std::sort(ours.begin(), ours.end(), by_key);
    std::sort(right.begin(), right.end(), by_key);
    if (ours != right) {
      return false;
    }
  }
  return is_executable(mutant);
}

bool passes(const Schedule& schedule) {
  try {
    check_schedule(schedule);
    return true;
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::kInternal);
    return false;
  }
}

std::string why_not(const Schedule& schedule) {
  try {
    check_schedule(schedule);
    return "";
  } catch (const Error& error) {
    return error.message();
  }
}

}  // namespace

TEST_CASE("schedule: bubble, makespan and peak in flight are the closed forms") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int micro_batches = 1; micro_batches <= 20; ++micro_batches) {
      CAPTURE(ranks);
      CAPTURE(micro_batches);
      const auto gpipe = check_schedule(make_gpipe(ranks, micro_batches));
      const auto one_f_one_b = check_schedule(make_1f1b(ranks, micro_batches));
      const auto forward = check_schedule(make_forward_only(ranks, micro_batches));
      const double slots = ranks - 1 + micro_batches;
      CHECK(gpipe.makespan == 3 * slots);
      CHECK(one_f_one_b.makespan == 3 * slots);
      CHECK(forward.makespan == slots);
      for (const auto& report : {gpipe, one_f_one_b, forward}) {
        CHECK(report.bubble_fraction == doctest::Approx((ranks - 1) / slots));
      }
      for (int rank = 0; rank < ranks; ++rank) {
        CHECK(gpipe.peak_in_flight.at(static_cast<size_t>(rank)) == micro_batches);
        CHECK(one_f_one_b.peak_in_flight.at(static_cast<size_t>(rank)) == std::min(ranks - rank, micro_batches));
        CHECK(forward.peak_in_flight.at(static_cast<size_t>(rank)) == 1);
      }
    }
  }
}

TEST_CASE("schedule: what is held at each backward") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (int micro_batches = 1; micro_batches <= 9; ++micro_batches) {
      for (const char* name : {"gpipe", "1f1b"}) {
        const auto report = check_schedule(make_schedule(name, ranks, micro_batches));
        for (int rank = 0; rank < ranks; ++rank) {
          const auto& moments = report.at_backwards.at(static_cast<size_t>(rank));
          REQUIRE(std::ssize(moments) == micro_batches);
          for (int k = 0; k < micro_batches; ++k) {
            const auto& held = moments[static_cast<size_t>(k)];
            CHECK(held.micro_batch == k);
            CHECK(held.end_of_begun ==
                  std::min(std::string(name) == "gpipe" ? micro_batches : k + ranks - rank, micro_batches));
            // Of one neighbour comes a gradient, of the other an activation; the last gradient is nobody's next.
            CHECK(std::ssize(held.received) <= (ranks == 1 ? 0 : 1));
            CHECK((k + 1 < micro_batches || held.received.empty()));
          }
        }
      }
    }
  }
  // What comes an action early: a gradient on the first rank, an activation on the last.
  const auto received = [](const char* name, size_t rank, size_t backward) {
    return check_schedule(make_schedule(name, 3, 4)).at_backwards.at(rank).at(backward).received;
  };
  CHECK(received("gpipe", 0, 0) == std::vector<int>{1});
  CHECK(received("1f1b", 2, 0) == std::vector<int>{1});
}

TEST_CASE("schedule: a replica without samples has nothing to do") {
  for (const char* name : {"gpipe", "1f1b"}) {
    const auto report = check_schedule(make_schedule(name, 3, 0));
    CHECK(report.makespan == 0);
    CHECK(report.bubble_fraction == 0);
  }
  CHECK(to_grid(make_1f1b(2, 0)) == "rank 0:\nrank 1:\n");
}

TEST_CASE("schedule: grids drawn by hand") {
  CHECK(to_grid(make_1f1b(2, 3)) ==
        "rank 0: F0 F1 .  .  B0 B0 F2 B1 B1 .  B2 B2\n"
        "rank 1: .  F0 B0 B0 F1 B1 B1 F2 B2 B2 .  .\n");
  CHECK(to_grid(make_gpipe(2, 2)) ==
        "rank 0: F0 F1 .  .  .  B0 B0 B1 B1\n"
        "rank 1: .  F0 F1 B0 B0 B1 B1 .  .\n");
}

TEST_CASE("schedule: names") {
  CHECK(make_schedule("gpipe", 2, 3).name == "gpipe");
  CHECK(make_schedule("1f1b", 2, 3).name == "1f1b");
  try {
    make_schedule("zigzag", 2, 3);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::kUsage);
    CHECK(error.message() == "unknown pipeline schedule 'zigzag'; known are: gpipe, 1f1b");
  }
}

TEST_CASE("schedule: the checker passes exactly those mutants that can be executed") {
  const RandomStream random(7, Purpose::kTest);
  uint64_t draw = 0;
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    const int ranks = 1 + static_cast<int>(random.below(4, draw++));
    // At least two: without its only backward, a schedule of one would be a right one for evaluation.
    const int micro_batches = 2 + static_cast<int>(random.below(5, draw++));
    const Schedule original = i % 2 == 0 ? make_1f1b(ranks, micro_batches) : make_gpipe(ranks, micro_batches);
    Schedule mutant = original;
    auto& actions = mutant.actions[random.below(static_cast<uint64_t>(ranks), draw++)];
    const auto at = static_cast<int64_t>(random.below(actions.size(), draw++));
    const auto other = static_cast<int64_t>(random.below(actions.size(), draw++));
    switch (random.below(4, draw++)) {
      case 0:
        actions.erase(actions.begin() + at);
        break;
      case 1:
        std::swap(actions[static_cast<size_t>(at)], actions[static_cast<size_t>(other)]);
        break;
      case 2:
        actions.insert(actions.begin() + other, actions[static_cast<size_t>(at)]);
        break;
      default:
        actions[static_cast<size_t>(at)].micro_batch += static_cast<int>(random.below(3, draw++)) - 1;
    }
    const bool valid = is_valid(mutant, original);
    refused += valid ? 0 : 1;
    CAPTURE(to_grid(original));
    CAPTURE(i);
    CHECK(passes(mutant) == valid);
  }
  CHECK(refused > 2000);
  CHECK(refused < 3000);  // some swaps are harmless
}

TEST_CASE("schedule: the checker names the wrong action") {
  const Schedule right = make_1f1b(2, 3);
  Schedule wrong = right;
  wrong.actions[1].pop_back();
  CHECK(why_not(wrong) == "schedule 1f1b: the backward of micro-batch 2 through stage 1 is missing");
  wrong = right;
  wrong.actions[0].push_back(wrong.actions[0].front());
  CHECK(why_not(wrong) == "schedule 1f1b: rank 0 has the forward of micro-batch 0 through stage 0 twice");
  wrong = right;
  wrong.actions[0].push_back({ActionKind::kForward, 1, 0});
  CHECK(why_not(wrong) ==
        "schedule 1f1b: rank 0 has the forward of micro-batch 0 through stage 1, which belongs to another rank");
  wrong = right;
  wrong.actions[0].push_back({ActionKind::kForward, 0, 3});
  CHECK(why_not(wrong) == "schedule 1f1b: rank 0 has a forward of micro-batch 3 through stage 0, which does not exist");
  wrong = right;
  std::swap(wrong.actions[0][1], wrong.actions[0][2]);  // F0 B0 F1 ... is slower, and right
  CHECK(why_not(wrong).empty());
  // Rank 0 wants its first gradient before it hands on the forward that rank 1 wants before it gives one.
  wrong = right;
  std::swap(wrong.actions[1][1], wrong.actions[1][2]);
  std::swap(wrong.actions[0][1], wrong.actions[0][2]);
  CHECK(why_not(wrong) ==
        "schedule 1f1b: deadlock: rank 0 before the backward of micro-batch 0 through stage 0; "
        "rank 1 before the forward of micro-batch 1 through stage 1");
}

TEST_CASE("message_plan: every message is planned once at both ends, and only between ranks") {
  for (const char* name : {"gpipe", "1f1b"}) {
    const Schedule schedule = make_schedule(name, 4, 6);
    const MessagePlan plan = plan_messages(schedule);
    std::set<ActionKey> sent;
    std::set<ActionKey> received;
    for (const auto& steps : plan) {
      for (const PlanStep& step : steps) {
        if (const auto* group = std::get_if<MessageGroup>(&step)) {
          for (const auto& [product, direction, peer] : *group) {
            auto& side = direction == Message::Direction::kSend ? sent : received;
            CHECK(side.insert({product.kind, product.stage, product.micro_batch}).second);
          }
        }
      }
    }
    CHECK(sent.size() == 2 * 3 * 6);
    const bool same = sent == received;
    CHECK(same);
  }
}

TEST_CASE("message_plan: in the steady state of 1F1B the activation down and the gradient up share an exchange") {
  const MessagePlan plan = plan_messages(make_1f1b(2, 8));
  const auto count = [](const std::vector<PlanStep>& steps) {
    return std::count_if(steps.begin(), steps.end(), [](const PlanStep& step) {
      const auto* group = std::get_if<MessageGroup>(&step);
      return group != nullptr && group->size() == 2;
    });
  };
  CHECK(count(plan[0]) == 6);
  CHECK(count(plan[1]) == 6);
}

TEST_CASE("message_plan: two stages on each of two ranks, with messages that stay on a rank") {
  // Ranks 0 0 1 1: one message of each micro-batch and direction.
  Schedule blocked{"blocked", 4, 2, {0, 0, 1, 1}, std::vector<std::vector<Action>>(2)};
  // Ranks 0 1 0 1: three.
  Schedule interleaved{"interleaved", 4, 2, {0, 1, 0, 1}, std::vector<std::vector<Action>>(2)};
  for (Schedule* schedule : {&blocked, &interleaved}) {
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
      for (int i = 0; i < 4; ++i) {
        const int stage = kind == ActionKind::kForward ? i : 3 - i;
        for (int m = 0; m < 2; ++m) {
          const int rank = schedule->rank_of_stage[static_cast<size_t>(stage)];
          schedule->actions[static_cast<size_t>(rank)].push_back({kind, stage, m});
        }
      }
    }
    CHECK(check_schedule(*schedule).peak_in_flight == std::vector<int>{4, 4});
  }
  const auto messages = [](const Schedule& schedule) {
    size_t count = 0;
    const MessagePlan plan = plan_messages(schedule);
    for (const PlanStep& step : plan[0]) {
      const auto* group = std::get_if<MessageGroup>(&step);
      count += group == nullptr ? 0 : group->size();
    }
    return count;
  };
  CHECK(messages(blocked) == 4);
  CHECK(messages(interleaved) == 12);
}

TEST_CASE("message_plan: the rendezvous simulation refuses what would hang") {
  const Schedule schedule = make_1f1b(2, 4);
  MessagePlan plan = plan_messages(schedule);
  check_rendezvous(schedule, plan);
  SUBCASE("two exchanges in opposite order") {
    // Rank 1 waits for micro-batch 1 in an exchange, rank 0 sends micro-batch 0 first; each is alone in its exchange.
    std::vector<size_t> exchanges;
    for (size_t i = 0; i < plan[1].size(); ++i) {
      if (std::holds_alternative<MessageGroup>(plan[1][i])) {
        exchanges.push_back(i);
      }
    }
    std::swap(plan[1][exchanges[0]], plan[1][exchanges[1]]);
    CHECK_THROWS_AS(check_rendezvous(schedule, plan), Error);
  }
  SUBCASE("both send before they receive") {
    const Action down{ActionKind::kForward, 0, 0};
    const Action up{ActionKind::kBackward, 1, 0};
    const auto send = [](const Action& product, int peer) {
      return MessageGroup{{product, Message::Direction::kSend, peer}};
    };
    const auto receive = [](const Action& product, int peer) {
      return MessageGroup{{product, Message::Direction::kReceive, peer}};
    };
    CHECK_THROWS_AS(check_rendezvous(schedule, {{send(down, 1), receive(up, 1)}, {send(up, 0), receive(down, 0)}}),
                    Error);
    // In one exchange they progress together.
    const MessageGroup rank0{{down, Message::Direction::kSend, 1}, {up, Message::Direction::kReceive, 1}};
    const MessageGroup rank1{{up, Message::Direction::kSend, 0}, {down, Message::Direction::kReceive, 0}};
    check_rendezvous(schedule, {{rank0}, {rank1}});
  }
  SUBCASE("a message that nobody receives") {
    std::get<MessageGroup>(plan[1][0]).clear();
    CHECK_THROWS_AS(check_rendezvous(schedule, plan), Error);
  }
  SUBCASE("an action before its message") {
    auto& steps = plan[1];
    const auto first = std::find_if(steps.begin(), steps.end(),
                                    [](const PlanStep& step) { return std::holds_alternative<Action>(step); });
    std::rotate(steps.begin(), first, first + 1);
    CHECK_THROWS_AS(check_rendezvous(schedule, plan), Error);
  }
}

namespace {

double cost_of(const std::vector<double>& costs, Range range) {
  return std::accumulate(costs.begin() + range.begin, costs.begin() + range.end, 0.0);
}

double largest_cost(const std::vector<double>& costs, const std::vector<Range>& stages) {
  double largest = 0;
  for (const Range& stage : stages) {
    largest = std::max(largest, cost_of(costs, stage));
  }
  return largest;
}

// The least possible largest cost of units [begin, n) in `stages` stages, by trying every cut.
double best(const std::vector<double>& costs, int64_t begin, int stages) {
  const auto end = static_cast<int64_t>(costs.size());
  if (stages == 1) {
    return cost_of(costs, {begin, end});
  }
  double least = std::numeric_limits<double>::infinity();
  for (int64_t cut = begin + 1; cut <= end - (stages - 1); ++cut) {
    least = std::min(least, std::max(cost_of(costs, {begin, cut}), best(costs, cut, stages - 1)));
  }
  return least;
}

// Where the stages end.
std::vector<int64_t> ends(const std::vector<double>& costs, int num_stages) {
  std::vector<int64_t> found;
  for (const Range& stage : partition_stages(costs, num_stages)) {
    found.push_back(stage.end);
  }
  return found;
}

std::string refusal(int units, int stages) {
  try {
    partition_stages(std::vector<double>(static_cast<size_t>(units), 1.0), stages);
    return "";
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::kUsage);
    return error.message();
  }
}

}  // namespace

TEST_CASE("stage_partition: the largest cost is the least possible, and every unit is in one stage") {
  const RandomStream random(11, Purpose::kTest);
  uint64_t draw = 0;
  for (int i = 0; i < 300; ++i) {
    const auto units = 1 + random.below(9, draw++);
    const auto stages = 1 + static_cast<int>(random.below(units, draw++));
    std::vector<double> costs(units);
    for (double& cost : costs) {
      cost = i % 2 == 0 ? random.uniform(draw++) : static_cast<double>(random.below(4, draw++));
    }
    const auto cut = partition_stages(costs, stages);
    REQUIRE(cut.size() == static_cast<size_t>(stages));
    int64_t end = 0;
    for (const Range& stage : cut) {
      CHECK(stage.begin == end);
      CHECK(stage.size() >= 1);
      end = stage.end;
    }
    CHECK(end == static_cast<int64_t>(units));
    CHECK(largest_cost(costs, cut) <= best(costs, 0, stages) + 1e-8);
  }
}

TEST_CASE("stage_partition: equal costs give the even split, also when they are not exact in binary") {
  for (const double cost : {1.0, 0.1}) {
    for (int units = 1; units <= 24; ++units) {
      for (int stages = 1; stages <= units; ++stages) {
        const auto cut = partition_stages(std::vector<double>(static_cast<size_t>(units), cost), stages);
        const Partition even(units, stages);
        for (int stage = 0; stage < stages; ++stage) {
          CHECK(cut[static_cast<size_t>(stage)].begin == even.part(stage).begin);
          CHECK(cut[static_cast<size_t>(stage)].end == even.part(stage).end);
        }
      }
    }
  }
}

TEST_CASE("stage_partition: embedding and head weigh in") {
  // An embedding of 5, 12 blocks of 10 and a head of 15. The even split of the 14 units, 3 4 3 4, has a stage of 45;
  // the best is 40, with 2, 4, 4 and 2 blocks.
  std::vector<double> costs(14, 10.0);
  costs.front() = 5.0;
  costs.back() = 15.0;
  CHECK(ends(costs, 4) == std::vector<int64_t>{3, 7, 11, 14});
  CHECK(ends({100.0, 1.0, 1.0, 1.0}, 2) == std::vector<int64_t>{1, 4});
}

TEST_CASE("stage_partition: every stage needs a unit") {
  CHECK(refusal(3, 4) ==
        "the pipeline cannot have 4 stages: the model has 3 layers to cut between, and every stage needs one; "
        "allowed: 1 to 3");
  CHECK(refusal(3, 0) ==
        "the pipeline cannot have 0 stages: the model has 3 layers to cut between, and every stage needs one; "
        "allowed: 1 to 3");
  CHECK(refusal(3, 3).empty());
}
