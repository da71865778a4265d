// The layout of a run: parts, sizes, memory as predicted, and advice where it is not enough.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "src/base/memory_tracker.h"
#include "src/config/run_config.h"
#include "src/plan/memory_plan.h"

namespace vit_hybrid::train {

/// One axis of the layout: its parts and its balance, the mean part over the largest (1: nobody waits).
struct AxisBalance {
  std::string text;  ///< "heads 3 + 3 + 2, MLP features 512 + 512 + 512"
  double balance = 1.0;
};

struct LayoutReport {
  AxisBalance data;      ///< samples of a full global batch over replicas
  AxisBalance tensor;    ///< FLOP of a block over tensor ranks
  AxisBalance pipeline;  ///< forward FLOP over stages
  std::string patches;   ///< what cut patches cost; empty where they divide the input
  std::string state;     ///< how the optimizer's lies on parts of the data axis; empty where it is not cut
  std::string recompute = "none";
  FullestRank fullest;
  double bubble = 0.0;  ///< idle share of the schedule on stages of equal cost
  int num_micro_batches = 1;

  /// The share of the ranks' speed that balance and bubble leave.
  double efficiency() const { return data.balance * tensor.balance * pipeline.balance * (1.0 - bubble); }
  /// The start-up table: one line an axis, and the share of the machine that the layout leaves at best.
  std::vector<std::string> lines() const;
};

/// "12.3 %" of a share.
std::string percent(double share);
/// The sizes of the parts of a Partition, in units of `each`.
std::vector<int64_t> shares_of(int64_t count, int parts, int64_t each = 1);

/// For a resolved configuration.
LayoutReport report_layout(const RunConfig& config, const ComputeTraits& compute);

/// What crosses the border between nodes, and in which order sums are made.
struct NodeReport {
  std::vector<std::string> lines;
  std::string warning;  ///< of a tensor group that spans nodes; else empty
};

/// `nodes`: how many ranks each has; `blocks`: of the sums of host tensors. No lines for one node that is their block.
NodeReport report_nodes(const RunConfig& config, const std::vector<int>& nodes, const std::vector<int>& blocks,
                        c10::DeviceType device);

/// "935 MiB: data 598 MiB, activations 140 MiB, ...": all together and each class that has a hundredth of it, the
/// largest first.
std::string memory_text(const MemoryPlan& memory);

/// The options that make a run of `config` (resolved) hold less, those for what holds most first; only such as are not
/// used yet. Pure.
std::string memory_advice(const RunConfig& config, const MemoryFailure& failure);

}  // namespace vit_hybrid::train
