// Own work, the watch over it with made-up times, and what is said.
#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "src/report/stragglers.h"
#include "tests/support/contains.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;
using doctest::Approx;
using testing::contains;

namespace {

constexpr size_t kDataWait = 0, kForward = 1, kBackward = 2;

// A job of ranks with the same work, a watch on each.
class Job {
 public:
  Job(int ranks, double step_seconds, double noise, unsigned seed)
      : watches_(static_cast<size_t>(ranks)), seconds_(step_seconds), noise_(noise), random_(seed) {}

  // `slow` does so much more in a part; -1: nobody. Returns who turned.
  std::vector<int> step(int slow = -1, double factor = 1.0, size_t part = kBackward) {
    ++step_;
    std::vector<WorkSeconds> work;
    WorkSeconds sum{};
    double longest = 0.0;
    for (int rank = 0; rank < std::ssize(watches_); ++rank) {
      const double base = 0.9 * seconds_ * (1.0 + noise_ * normal_(random_));
      WorkSeconds own = {0.0, 0.3 * base, 0.6 * base, 0.02 * base, 0.06 * base, 0.02 * base};
      own[part] += rank == slow ? (factor - 1.0) * base : 0.0;
      add(sum, own);
      work.push_back(own);
      longest = std::max(longest, total(own));
    }
    std::vector<int> turned;
    for (int rank = 0; rank < std::ssize(watches_); ++rank) {
      const auto ranks = static_cast<int>(watches_.size());
      if (watch(rank).add(
              {step_, longest + 0.1 * seconds_, work[static_cast<size_t>(rank)], 4.0, ranks, sum, 4.0 * ranks})) {
        turned.push_back(rank);
      }
    }
    return turned;
  }

  StragglerWatch& watch(int rank) { return watches_[static_cast<size_t>(rank)]; }
  int64_t steps() const { return step_; }

 private:
  std::vector<StragglerWatch> watches_;
  double seconds_;
  double noise_;
  std::mt19937 random_;
  std::normal_distribution<double> normal_;
  int64_t step_ = 0;
};

// Steps until somebody turns; 0: nobody does in `most` steps.
int steps_until_turned(Job& job, int rank, int most, int slow, double factor, size_t part = kBackward) {
  for (int i = 1; i <= most; ++i) {
    const std::vector<int> turned = job.step(slow, factor, part);
    if (!turned.empty()) {
      CHECK(turned == std::vector<int>{rank});
      return i;
    }
  }
  return 0;
}

}  // namespace

TEST_CASE("own work: each part without what was blocked in it, and the rest without the rest") {
  StepSeconds seconds;
  seconds.step = 10.0;
  seconds.data_wait = 1.0;
  seconds.forward = 2.0;
  seconds.backward = 3.0;
  seconds.reduce = 1.5;
  seconds.optimizer = 0.5;
  const Waits before = {{{"forward", 7.0, 1.0}, {"validation", 100.0}}, 2.0};
  Waits after = {{{"forward", 7.5, 1.25},
                  {"validation", 100.0},
                  {"backward", 1.0, 0.5},
                  {"optimizer", 0.75},
                  {"gradient reduction", 1.25},
                  {"", 1.0}},
                 2.75};
  // 10 s less 4.5 s blocked: 5.5 s, of which the parts that are known have 1 + 1.5 + 2 + 0.25 + 0. All time without a
  // core was in communicators.
  CHECK(own_work(seconds, before, after) == WorkSeconds{1.0, 1.5, 2.0, 0.25, 0.0, 0.75});
  after.without_core += 2.25;  // half of what is not data wait
  CHECK(own_work(seconds, before, after) == WorkSeconds{1.0, 0.75, 1.0, 0.125, 0.0, 0.375});
}

TEST_CASE("stragglers: one of 2 or 8 ranks that is 20 % slower is named within 20 steps, with its part, and recovers") {
  for (const int ranks : {2, 8}) {
    for (unsigned seed = 1; seed <= 200; ++seed) {
      CAPTURE(ranks);
      CAPTURE(seed);
      Job job(ranks, 0.1, 0.05, seed);
      const int slow = static_cast<int>(seed) % ranks;
      REQUIRE(steps_until_turned(job, -1, 40, -1, 1.0) == 0);
      const int steps = steps_until_turned(job, slow, 20, slow, 1.2);
      REQUIRE(steps > 0);
      REQUIRE(job.watch(slow).is_slow());
      const SlowSpell spell = job.watch(slow).spells().back();
      CHECK(spell.part == kBackward);
      CHECK(std::abs(spell.from - 41) <= 15);
      REQUIRE(steps_until_turned(job, -1, 30, slow, 1.2) == 0);
      CHECK(job.watch(slow).spells().back().seconds == Approx(0.018).epsilon(0.35));
      CHECK(job.watch(slow).spells().back().percent == Approx(100.0 * 0.018 / 0.118).epsilon(0.35));
      REQUIRE(steps_until_turned(job, slow, 60, -1, 1.0) > 0);
      CHECK(std::abs(job.watch(slow).spells().back().to.value() - (40 + steps + 30)) <= 8);
      CHECK_FALSE(job.watch(slow).is_slow());
    }
  }
}

TEST_CASE(
    "stragglers: a suspicion comes in half the steps, goes by itself, and is told at once where it is confirmed") {
  Job job(2, 0.1, 0.01, 1);
  const StragglerWatch& watch = job.watch(1);
  REQUIRE(steps_until_turned(job, -1, 40, -1, 1.0) == 0);
  const auto steps_until_suspected = [&] {
    CHECK_FALSE(watch.suspects());
    int steps = 0;
    for (; !watch.suspects() && steps < 20; ++steps) {
      REQUIRE(job.step(1, 1.2).empty());
    }
    return steps;
  };
  const int steps = steps_until_suspected();
  CHECK_FALSE(watch.is_slow());
  for (int i = 0; i < 20 && watch.suspects(); ++i) {
    job.step();
  }
  CHECK_FALSE(watch.suspects());
  CHECK(watch.spells().empty());
  CHECK(steps_until_suspected() == steps);
  CHECK(steps_until_turned(job, 1, 2 * steps, 1, 1.2) >= steps - 1);
  CHECK_FALSE(watch.suspects());
  REQUIRE(steps_until_turned(job, 1, 60, -1, 1.0) > 0);

  steps_until_suspected();
  job.watch(1).confirm();
  CHECK(watch.is_slow());
  CHECK_FALSE(watch.suspects());
  CHECK(watch.spells().size() == 2);
  CHECK(watch.spells().back().percent == Approx(100.0 * 0.018 / 0.118).epsilon(0.35));
  CHECK(steps_until_turned(job, 1, 60, -1, 1.0) > 0);
}

TEST_CASE("stragglers: where nobody is slow nobody is named, however noisy the steps are") {
  for (const double noise : {0.0, 0.02, 0.1, 0.2}) {
    for (unsigned seed = 1; seed <= 50; ++seed) {
      Job job(8, 0.1, noise, seed);
      CAPTURE(noise);
      CAPTURE(seed);
      CHECK(steps_until_turned(job, -1, 200, -1, 1.0) == 0);
    }
  }
}

TEST_CASE("stragglers: single long delays are nobody's slowness, and 5 % is not enough") {
  Job job(4, 0.1, 0.01, 3);
  for (int i = 0; i < 20; ++i) {
    CHECK(steps_until_turned(job, -1, 9, -1, 1.0) == 0);
    CHECK(steps_until_turned(job, -1, 1, 2, 10.0) == 0);
  }
  Job little(4, 0.1, 0.01, 4);
  CHECK(steps_until_turned(little, -1, 400, 1, 1.05) == 0);
}

TEST_CASE("stragglers: short steps are looked at together") {
  Job job(2, 0.004, 0.05, 5);
  CHECK(steps_until_turned(job, -1, 200, -1, 1.0) == 0);
  const int steps = steps_until_turned(job, 1, 400, 1, 1.4, kDataWait);
  CHECK(steps > 13);  // more than one look of 13 steps
  CHECK(steps < 200);
  const SlowSpell spell = job.watch(1).spells().back();
  CHECK(spell.part == kDataWait);
  CHECK(std::abs(spell.from - 200) <= 26);
  CHECK(spell.seconds == Approx(0.4 * 0.9 * 0.004).epsilon(0.3));
}

TEST_CASE("stragglers: a rank without peers is compared with its own past") {
  Job job(1, 0.1, 0.03, 6);
  CHECK(steps_until_turned(job, -1, 60, -1, 1.0) == 0);
  CHECK(steps_until_turned(job, 0, 20, 0, 1.3, kForward) > 0);
  CHECK(job.watch(0).spells().back().part == kForward);
}

TEST_CASE("stragglers: who has more samples than its peers may work longer") {
  StragglerWatch watch;
  for (int64_t step = 1; step <= 100; ++step) {
    const WorkSeconds own = {0.0, 0.03, 0.06, 0.0, 0.0, 0.0};
    const WorkSeconds peers = {0.0, 0.05, 0.10, 0.0, 0.0, 0.0};
    CHECK_FALSE(watch.add({step, 0.1, own, 3.0, 2, peers, 5.0}));
  }
}

TEST_CASE(
    "stragglers: who has fewer samples, or none, may take as long as its peers for what does not depend on them") {
  for (const double samples : {0.0, 1.0}) {
    StragglerWatch watch;
    for (int64_t step = 1; step <= 100; ++step) {
      const WorkSeconds own = {0.0, 0.01 * samples, 0.02 * samples, 0.0, 0.03, 0.01};
      const WorkSeconds peers = {0.0, 0.01 * (samples + 6.0), 0.02 * (samples + 6.0), 0.0, 0.12, 0.04};
      CHECK_FALSE(watch.add({step, 0.1, own, samples, 4, peers, samples + 6.0}));
    }
  }
}

TEST_CASE("stragglers: who works many times as long is slow until it is not, with peers and without") {
  for (const int ranks : {1, 2, 4}) {
    CAPTURE(ranks);
    Job job(ranks, 0.1, 0.01, 7);
    REQUIRE(steps_until_turned(job, -1, 40, -1, 1.0) == 0);
    REQUIRE(steps_until_turned(job, 0, 20, 0, 20.0) > 0);
    CHECK(steps_until_turned(job, -1, 300, 0, 20.0) == 0);
    CHECK(job.watch(0).spells().back().percent > 80.0);
    REQUIRE(steps_until_turned(job, 0, 60, -1, 1.0) > 0);
    CHECK(steps_until_turned(job, -1, 100, -1, 1.0) == 0);
    CHECK(steps_until_turned(job, 0, 20, 0, 1.5) > 0);
  }
}

TEST_CASE("stragglers: ranks that turn together are told in one line, by host, with the worst one's figures") {
  const auto found = [](int rank, const char* host, double percent, std::optional<int64_t> to) {
    return to_json(SlowSpell{121, to, kDataWait, 0.001 * percent, percent}, rank, host);
  };
  const StragglerLines lines =
      straggler_lines(140, {found(4, "b", 12.0, {}), found(5, "b", 16.0, {}), found(9, "c", 9.0, 139)});
  CHECK(lines.slow ==
        "step 140: ranks 4, 5 on b are slow since step 121: up to 16 ms a step (16 %) more work than its peers have, "
        "most of it in data wait");
  CHECK(lines.recovered ==
        "step 140: rank 9 on c is slow no more: in steps 121 to 139 it was 9 % of a step, most of it in data wait");
  const StragglerLines one = straggler_lines(140, {found(4, "b", 12.0, {})});
  CHECK(contains(one.slow, "step 140: rank 4 on b is slow since step 121: 12 ms a step (12 %) more work"));
  CHECK(one.recovered.empty());
}

TEST_CASE("stragglers: the rank with most work stands beside its stage, or beside all where it is alone in it") {
  const auto rank = [](int number, int stage, double forward, double backward) {
    return Json{{"rank", number},
                {"host", "h"},
                {"stage", stage},
                {"own_seconds", to_json(WorkSeconds{0.0, forward, backward, 0.0, 0.0, 0.0})}};
  };
  Json deciding = deciding_rank(Json::array({rank(0, 0, 9.0, 1.0), rank(1, 1, 10.0, 30.0), rank(2, 1, 8.0, 20.0)}), 10);
  CHECK(deciding["rank"] == 1);
  CHECK(deciding["own_seconds"].get<double>() == Approx(4.0));
  CHECK(deciding["others_seconds"].get<double>() == Approx(2.8));
  CHECK(deciding["part"] == "backward");
  CHECK(deciding_line(deciding) ==
        "rank 1 on h has most work: 4000.000 ms a step beside waiting for others, who have 2800.000 ms; most of the "
        "difference in backward");
  deciding = deciding_rank(Json::array({rank(0, 0, 9.0, 1.0), rank(1, 1, 4.0, 2.0)}), 1);
  CHECK(deciding["rank"] == 0);
  CHECK(deciding["others_seconds"].get<double>() == Approx(6.0));
  CHECK(deciding["part"] == "forward");
  CHECK(deciding_rank(Json::array({rank(0, 0, 9.0, 1.0)}), 1).is_null());
  CHECK(deciding_rank(Json::array({rank(0, 0, 9.0, 1.0), rank(1, 1, 4.0, 2.0)}), 0).is_null());
}
