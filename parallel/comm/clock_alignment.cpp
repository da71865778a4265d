// Rounds of question and answer, and the line between two offsets.
#include "parallel/comm/clock_alignment.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "parallel/comm/host_task.h"
#include "src/base/trace.h"

namespace vit_hybrid::comm {

namespace {

constexpr int kFewestRounds = 20;
constexpr int64_t kGoodWidth = 4'000;          // nanoseconds: what messages between two nodes take there and back
constexpr int64_t kMostOfARank = 20'000'000;   // nanoseconds of rounds, where they are slow
constexpr int64_t kMostOfAll = 2'000'000'000;  // of all ranks together
constexpr int64_t kLeastOfARank = 1'000'000;

// While the two ranks measure they do not sleep: what wakes late would answer late.
class Awake {
 public:
  Awake() : before_(Waiting::set_manner(Waiting::Manner::kYield)) {}
  ~Awake() { Waiting::set_manner(before_); }
  Awake(const Awake&) = delete;
  Awake& operator=(const Awake&) = delete;

 private:
  Waiting::Manner before_;
};

enum class ClockQuestion : int64_t { kTime, kNone };

// Of the offset of one rank's clock, by rank 0.
struct Bounds {
  int64_t least = std::numeric_limits<int64_t>::min();
  int64_t most = std::numeric_limits<int64_t>::max();
};

void send_question(const MpiGroup& group, int rank, ClockQuestion question) {
  group.send(&question, sizeof question, rank);
}

Bounds ask(const MpiGroup& group, int rank) {
  const int64_t limit = std::clamp(kMostOfAll / group.size(), kLeastOfARank, kMostOfARank);
  const Awake awake;
  const int64_t start = trace::now();
  Bounds bounds;
  for (int round = 0;; ++round) {
    const int64_t asked = trace::now();
    const bool is_good = round >= kFewestRounds && bounds.most - bounds.least <= kGoodWidth;
    if (is_good || (round > 0 && asked - start > limit)) break;
    int64_t answer = 0;
    send_question(group, rank, ClockQuestion::kTime);
    group.receive(&answer, sizeof answer, rank);
    const int64_t arrived = trace::now();
    bounds.least = std::max(bounds.least, answer - arrived);
    bounds.most = std::min(bounds.most, answer - asked);
  }
  send_question(group, rank, ClockQuestion::kNone);
  return bounds;
}

void answer(const MpiGroup& group) {
  for (std::optional<Awake> awake;;) {
    ClockQuestion question{};
    group.receive(&question, sizeof question, 0);
    const int64_t own = trace::now();
    if (question == ClockQuestion::kNone) return;
    if (!awake) awake.emplace();
    group.send(&own, sizeof own, 0);
  }
}

}  // namespace

ClockOffset offset_between(int64_t least, int64_t most, int64_t at) {
  if (least <= 0 && 0 <= most) {
    return {at, 0, std::max(-least, most)};
  }
  const int64_t width = most - least;  // below 0 where the clocks drifted by more than the messages took
  return {at, least + width / 2, (std::abs(width) + 1) / 2};
}

ClockOffset measure_clock_offset(const MpiGroup& group) {
  if (group.rank() == 0) {
    for (int rank = 1; rank < group.size(); ++rank) {
      const Bounds bounds = ask(group, rank);
      group.send(&bounds, sizeof bounds, rank);
    }
    return {trace::now(), 0, 0};
  }
  Bounds bounds;
  answer(group);
  group.receive(&bounds, sizeof bounds, 0);
  return offset_between(bounds.least, bounds.most, trace::now());
}

int64_t ClockAlignment::on_rank_0(int64_t own) const {
  return own - first_.offset - std::llround(drift() * 1e-9 * static_cast<double>(own - first_.at));
}

int64_t ClockAlignment::error() const {
  return std::max(first_.error, last_.error);
}

double ClockAlignment::drift() const {
  const int64_t between = last_.at - first_.at;
  return between <= 0 ? 0.0 : static_cast<double>(last_.offset - first_.offset) / static_cast<double>(between) * 1e9;
}

}  // namespace vit_hybrid::comm
