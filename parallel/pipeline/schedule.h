// Pipeline schedules as data (GPipe, 1F1B): made, printed and checked; and the cut of a model's units into stages.
#pragma once

#include <string>
#include <vector>

#include "src/base/partition.h"

namespace vit_hybrid::pipeline {

/// Contiguous ranges of units (`costs`, any unit, not negative), one a stage and each with at least one unit, such that
/// the largest cost of a stage is the smallest possible. Of equal solutions it is the one nearest to the even split
/// Partition(units, stages). More stages than units, or less than one, is Error(kUsage) with the allowed range.
std::vector<Range> partition_stages(const std::vector<double>& costs, int num_stages);

enum class ActionKind { kForward, kBackward };

/// One step of a pipeline rank: run `micro_batch` forward or backward through global stage `stage`.
struct Action {
  ActionKind kind;
  int stage;
  int micro_batch;
  bool operator==(const Action&) const = default;
};

/// A list of actions per pipeline rank over the global stages 0 .. num_stages - 1. Messages are derived from it.
struct Schedule {
  std::string name;
  int num_stages = 1;
  int num_micro_batches = 1;
  std::vector<int> rank_of_stage;            ///< by global stage
  std::vector<std::vector<Action>> actions;  ///< by pipeline rank

  int num_ranks() const { return static_cast<int>(actions.size()); }
};

/// All forwards, then all backwards: Y. Huang et al., GPipe, NeurIPS 2019, section 2.2.
Schedule make_gpipe(int num_ranks, int num_micro_batches);

/// One forward, one backward: D. Narayanan et al., "Efficient large-scale language model training on GPU clusters",
/// SC21, section 2.2.1. At most num_ranks - rank micro-batches are in flight on a rank.
Schedule make_1f1b(int num_ranks, int num_micro_batches);

/// Only the forwards (evaluation).
Schedule make_forward_only(int num_ranks, int num_micro_batches);

/// By name: "gpipe" or "1f1b"; another name is Error(kUsage) with the valid ones.
Schedule make_schedule(const std::string& name, int num_ranks, int num_micro_batches);

/// What a rank holds while a backward runs.
struct HeldAtBackward {
  int micro_batch = 0;        ///< whose backward runs: the oldest in flight
  int end_of_begun = 0;       ///< of the micro-batches whose forward has run
  std::vector<int> received;  ///< those of which a message for a later action is here, or about to be
};

/// What a run of the schedule takes, found by simulating it with unit times.
struct ScheduleReport {
  double makespan = 0;                                    ///< in the unit of the times given
  double bubble_fraction = 0;                             ///< idle time of all ranks over num_ranks x makespan
  std::vector<int> peak_in_flight;                        ///< by rank: most micro-batches whose forward is kept
  std::vector<std::vector<HeldAtBackward>> at_backwards;  ///< by rank, in order
};

/// True for a schedule that trains; one without any backward evaluates.
bool has_backward(const Schedule& schedule);

/// Simulates the schedule with blocking receives and buffered sends, and its message plan (message_plan.h) with sends
/// that block until they are received. Throws Error(kInternal) that names the first wrong action: missing, repeated or
/// unordered actions, a message without counterpart, a deadlock.
ScheduleReport check_schedule(const Schedule& schedule, double forward_time = 1.0, double backward_time = 2.0);

/// One row a rank, one column a unit of time: "F3" and "B3" for micro-batch 3, "." for idle; a forward takes one unit,
/// a backward two.
std::string to_grid(const Schedule& schedule);

}  // namespace vit_hybrid::pipeline
