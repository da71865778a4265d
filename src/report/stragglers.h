// Stragglers: the work of each rank apart from its waiting, and which ranks have so much of it that others wait for
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/statistics.h"
#include "src/base/json.h"
#include "src/report/run_log.h"

namespace vit_hybrid::train {

/// The parts of a step in which a rank works, as summary.json names them; "rest" is what is in no other.
inline constexpr std::array<const char*, 6> kWorkParts = {"data_wait", "forward",   "backward",
                                                          "reduce",    "optimizer", "rest"};
/// Seconds by part.
using WorkSeconds = std::array<double, kWorkParts.size()>;

double total(const WorkSeconds& work);
void add(WorkSeconds& sum, const WorkSeconds& work);
/// As an object with one number by part.
Json to_json(const WorkSeconds& work);

/// Where a rank is between steps: what it was blocked, and how long it had no core (seconds_without_core()).
struct Waits {
  std::vector<comm::PhaseBlocked> blocked;
  double without_core = 0.0;

  static Waits now();
};

/// What a rank did by itself in a step of `seconds`: each part without the time in which the rank was blocked in
/// communicators, and without that in which it had no core, which the parts but data_wait share by their seconds.
WorkSeconds own_work(const StepSeconds& seconds, const Waits& before, const Waits& after);

/// One step for one rank, and for its peers: itself and the ranks that have the same part of the model in other
/// replicas, and so the same to do with each sample.
struct WatchedStep {
  int64_t step = 0;
  double seconds = 0.0;  ///< that it took; the same on all ranks
  WorkSeconds own{};
  double samples = 0.0;  ///< that the rank worked on
  int peers = 1;
  WorkSeconds peers_work{};  ///< sums over the peers
  double peers_samples = 0.0;
};

/// Steps in which others waited for a rank.
struct SlowSpell {
  int64_t from = 0;
  std::optional<int64_t> to;  ///< nothing: it goes on
  size_t part = 0;            ///< of kWorkParts, the one with most of what others wait for
  double seconds = 0.0;       ///< a step that the rank works longer than its peers do on as many samples
  double percent = 0.0;       ///< of the step's time
};

/// {"from_step", "to_step", "seconds_per_step", "percent"}; with the rank that was slow "rank", "host", "slow" and
/// "part", too.
Json to_json(const SlowSpell& spell);
Json to_json(const SlowSpell& spell, int rank, const std::string& host);

/// For people, what was found at `step`: who became slow, and who is slow no more, where several did on one line.
/// `found`: of to_json().
struct StragglerLines {
  std::string slow;       ///< a warning; may be empty
  std::string recovered;  ///< may be empty
};
StragglerLines straggler_lines(int64_t step, const std::vector<Json>& found);

/// Finds out whether the rank that it is on has become slow and stays so: whether its work takes longer than that of
/// its peers by more than 5 % of the steps' time. Without peers it is compared with itself, early in the run.
///
/// A cumulative sum (CUSUM; E. S. Page, Continuous inspection schemes, Biometrika 41, 1954) of that share less 5 %,
/// from 0 up, tells of a change when it passes a limit. The limit rises with the noise of the share, such that without
/// a change it is passed once in e^25 looks, were the noise white, normal and known (D. Siegmund, Sequential Analysis,
/// 1985). It looks at each step, or where steps are short at so many together as take 50 ms, and the share of one look
/// counts as 40 % at most, so that no single delay is taken for slowness.
class StragglerWatch {
 public:
  StragglerWatch();

  /// True where the rank became slow, or was and is so no more.
  bool add(const WatchedStep& step);

  /// From half of what tells that the rank is slow, until that is told or the sum is down at 0 again.
  bool suspects() const { return suspects_; }
  /// What is suspected is known to be so: the rank is slow.
  void confirm();

  bool is_slow() const { return !spells_.empty() && !spells_.back().to; }
  const std::vector<SlowSpell>& spells() const { return spells_; }

 private:
  // Steps that are looked at together.
  struct Look {
    int64_t first = 0;
    int64_t steps = 0;
    double seconds = 0.0;
    WorkSeconds own{};
    double samples = 0.0;
    int peers = 1;
    WorkSeconds peers_work{};
    double peers_samples = 0.0;

    void add(const Look& other);
  };
  // What is too much, from a look on.
  struct Excess {
    int64_t first = 0;
    int64_t steps = 0;
    double seconds = 0.0;  // of the steps
    WorkSeconds work{};

    void add(const Look& look, const WorkSeconds& excess);
  };

  bool judge(const Look& look);
  /// By part, how much longer the rank worked than it should have; nothing where nobody can know.
  std::optional<WorkSeconds> excess_of(const Look& look);
  void learn_noise(double share);
  double limit() const;
  bool look_for_onset(const Look& look, double share, const WorkSeconds& excess);
  bool look_for_recovery(const Look& look, double share, const WorkSeconds& excess);
  SlowSpell spell() const;

  int64_t num_steps_ = 0;
  Look look_;
  int64_t num_looks_ = 0;
  Look past_;  // what a rank without peers is compared with
  int num_past_ = 0;
  std::optional<double> last_share_;
  double variance_;     // of the share
  double score_ = 0.0;  // the cumulative sum, up to slowness or down from it
  bool suspects_ = false;
  Excess excess_;
  int64_t well_since_ = 0;  // of a slow rank: 0 while it is
  std::vector<SlowSpell> spells_;
};

/// The rank with most own work of all, beside the mean of the others of its stage (without any, of all): {"rank",
/// "host", "part" (of the largest difference), "own_seconds", "others_seconds"}, in seconds a step; null where there is
/// one rank, or no step was done. `ranks`: of gather_rank_reports().
Json deciding_rank(const Json& ranks, int64_t steps);
std::string deciding_line(const Json& deciding);

}  // namespace vit_hybrid::train
