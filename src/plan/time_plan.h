// TimePlan: how long a training step takes on a machine, phase by phase, before anything runs.
#pragma once

#include <algorithm>
#include <string>

#include "src/base/json.h"
#include "src/config/run_config.h"
#include "src/machine/machine_file.h"
#include "src/plan/memory_plan.h"

namespace vit_hybrid::train {

/// Seconds of a step with the whole batch: means over the stages of the replica with most samples, where each rank is
/// the slowest of its tensor group.
struct TimePlan {
  double forward = 0.0;    ///< with the tensor axis' sums
  double backward = 0.0;   ///< likewise
  double reduce = 0.0;     ///< what backward does not hide of the gradients' reduction, and the norm
  double optimizer = 0.0;  ///< update, and what nothing hides of the parameters' gathering
  double waiting = 0.0;    ///< for other stages
  double data_wait = 0.0;  ///< for data that are read more slowly than the step goes
  double step = 0.0;       ///< all of it
  double messages = 0.0;   ///< of forward's and backward's seconds, those of messages that nothing hides
};

/// {"forward", "backward", ..., "step"}: seconds by name.
Json to_json(const TimePlan& time);
/// "a step 0.53 s: forward 0.17 s, ...".
std::string time_text(const TimePlan& time);

/// So many consecutive ranks on each node.
struct RanksOnNodes {
  int ranks = 1;  ///< in all
  int per_node = 1;

  int nodes() const { return (ranks + per_node - 1) / per_node; }
  int on_node() const { return std::min(ranks, per_node); }  ///< on the fullest
};

/// Why `machine` cannot tell the times of a training: no rates of its precision, none of messages between ranks that
/// are on nodes so, or those of another kind of device; empty where it can.
std::string missing_rates(const MachineFile& machine, Precision precision, c10::DeviceType device,
                          const RanksOnNodes& ranks);
/// Error(kUsage) where `machine`, that of --machine FILE, has missing_rates().
void require_rates(const MachineFile& machine, const std::string& file, Precision precision, c10::DeviceType device,
                   const RanksOnNodes& ranks);

/// What is to be said where `file`, that of --machine, has no rates of so many ranks a node (or as many as its cores
/// have room for) of so many threads, so that plan_time() takes others; empty where it has them, and for GPUs.
std::string other_population(const std::string& file, const MachineFile& machine, int ranks_per_node, int threads);

/// Of a resolved configuration, on nodes of `ranks_per_node` consecutive ranks, each of `threads` threads. Kernels take
/// their rates; forward and backward of the stages are put together as the Schedule that the runner walks has them, on
/// its stages and micro-batches. The buckets of gradients are on their way from when their last parameter is ready,
/// those of parameters until forward comes to them. On GPUs that hides them; and tensor ranks' sums in backward go
/// beside weight gradients, in forward beside the other half of a micro-batch (--tp-overlap). On the host it hides what
/// is on its way between nodes, as far as ranks look after it, and never what they do themselves. Ranks that share
/// cores take turns. Where the machine's rate of reading is known, HDF5 data are read beside the step (before it with
/// --io-threads 0).
/// missing_rates() must be empty.
TimePlan plan_time(const StepConfig& config, const DataConfig& data, const MachineFile& machine, int ranks_per_node,
                   int threads);

}  // namespace vit_hybrid::train
