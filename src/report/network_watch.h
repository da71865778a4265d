// NetworkWatch: the rates of the links between nodes, whether communication has become slow, and which link it is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/json.h"
#include "src/report/stragglers.h"

namespace vit_hybrid::train {

/// Bytes a second, [from][to] by number of the node; 0 on the diagonal.
using LinkRates = std::vector<std::vector<double>>;

/// The partner of `node` in `round`, 0 to n - 2, of a tournament of n players, an even number: in each round all have
/// one, and in all rounds every other one (the circle method).
int partner(int node, int round, int players);

/// The first ranks of two nodes send each other `bytes` over MPI, in one direction after the other, pairs of different
/// nodes at the same time; the fastest of three messages counts. Takes as many rounds as there are other nodes. The
/// table is on rank 0, and empty elsewhere and where there is one node. `nodes`: how many ranks each has, in their
/// order. Collective over `world`.
LinkRates measure_link_rates(const comm::MpiGroup& world, const std::vector<int>& nodes, int64_t bytes);

/// What a table of rates says at first sight.
struct LinkSummary {
  double median = 0.0;  ///< bytes a second, of all links
  double slowest = 0.0;
  size_t from = 0;  ///< the slowest link
  size_t to = 0;
};
LinkSummary summary_of(const LinkRates& rates);

/// Whose links are slow: those out of one node, those into one, one alone, or, against what they were `before`, all:
/// "node-b sends 59 MB/s, the others 117 MB/s". Slow is what has less than three quarters of the median of all.
/// `hosts`: names of the nodes.
struct LinkFinding {
  bool is_slow = false;
  std::string text;  ///< where none is slow, too
};
LinkFinding find_slow_link(const LinkRates& now, const LinkRates& before, const std::vector<std::string>& hosts);

/// Of a run on CPUs of several nodes. All ranks feed it with the same numbers.
class NetworkWatch {
 public:
  /// Measures the links as they are at the start. Collective over `world`, which outlives it.
  explicit NetworkWatch(const comm::MpiGroup& world);

  /// One line for the start of the run, on rank 0.
  std::string start_line() const;
  /// {"median", "slowest", "from", "to"}; on rank 0.
  Json start_json() const;

  /// One step of `seconds`, in which the rank that waited least was blocked in communicators for `least_blocked`: what
  /// moving the bytes took, and in a pipeline the bubble. True where that has become slow, as StragglerWatch has it or
  /// begins to suspect, or is so no more: then tell() is to be called, by all.
  bool add(int64_t step, double seconds, double least_blocked);

  /// What was found at `step`, as a record: {"kind": "network", "step", "slow", "from_step", "to_step",
  /// "seconds_per_step", "percent", "slow_link", "found"}; on rank 0. If it is slow the links are measured again, which
  /// shall have nothing else to carry; a suspicion that they do not confirm is null. Collective over the world.
  Json tell(int64_t step);

  /// Of all times when it was slow: "from_step", "to_step", "seconds_per_step" and "percent".
  Json spells() const;

 private:
  const comm::MpiGroup& world_;
  std::vector<int> nodes_;
  std::vector<std::string> hosts_;
  LinkRates at_start_;
  StragglerWatch watch_;
};

/// For people, of a record of tell().
std::string network_line(const Json& record);

}  // namespace vit_hybrid::train
