// What a run tells at its start: its layout (parts, sizes, memory as predicted, and advice where it is not enough), and
// its kernels, with what the padding of dimensions costs.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/vit_options.h"
#include "src/base/memory_tracker.h"
#include "src/config/run_config.h"
#include "src/machine/model_memory.h"
#include "src/plan/memory_plan.h"
#include "src/report/metrics_log.h"

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
LayoutReport report_layout(const StepConfig& config, const DataConfig& data, const ComputeTraits& compute);

/// What crosses the border between nodes, and in which order sums are made.
struct NodeReport {
  std::vector<std::string> lines;
  std::string warning;  ///< of a tensor group that spans nodes; else empty
};

/// `nodes`: how many ranks each has; `blocks`: of the sums of host tensors. No lines for one node that is their block.
NodeReport report_nodes(const StepConfig& config, const std::vector<int>& nodes, const std::vector<int>& blocks,
                        c10::DeviceType device);

/// "935 MiB; peaks: data 598 MiB, activations 140 MiB, ...": all together and each class of `least` bytes or more, the
/// largest first.
std::string memory_text(const MemoryPlan& memory, int64_t least = 0);

/// The options that make a run of `config` (resolved) hold less, those for what holds most first; only such as are not
/// used yet. Pure.
std::string memory_advice(const StepConfig& config, const DataConfig& data, const MemoryFailure& failure);

// Kernels, and what the padding of dimensions costs.

/// What products are made of on a device: counts of elements that its units take at a time.
struct UnitMultiples {
  int64_t features = 1;  ///< rows and columns of a product
  int64_t head_dim = 1;  ///< of attention's kernels
  int64_t tokens = 1;    ///< columns of attention's scores
  int64_t queries = 1;   ///< rows of attention's scores
};

/// On a GPU the 16 bytes that tensor cores read at a time, and with half types the tiles of the fused attention kernels
/// (heads in steps of 32, 64 tokens); on a host the sums of one vector of `vector_bytes`. 1 where there are no such
/// units.
UnitMultiples unit_multiples(c10::DeviceType device, Precision precision, int vector_bytes);

/// A dimension of a slice that is no multiple: the device computes the larger, padded one.
struct PaddedDim {
  std::string name;             ///< "MLP features"
  std::vector<int64_t> shares;  ///< of each tensor rank, or one where all hold the whole
  int64_t multiple = 1;
  int64_t padded = 0;    ///< the largest share, padded
  std::string products;  ///< that have it: "fc1 and fc2"
  double waste = 0.0;    ///< what they compute for nothing, as a part of what is needed
  double cost = 0.0;     ///< the same as a part of all products of the model
};

/// Those of a model cut over `tensor_size` ranks; empty where all fit.
std::vector<PaddedDim> padded_dims(const model::VitOptions& options, int tensor_size, const UnitMultiples& multiples);

struct KernelReport {
  std::vector<std::pair<std::string, std::string>> parts;  ///< ("attention", "blocked, ...")
  std::vector<PaddedDim> padded;

  /// One line a part, and one for each dimension that is padded: "MLP features 171 + 171 + 170: no multiple of 8,
  /// padded to 176; 2.9 % more work in fc1 and fc2, 1.2 % of ...".
  std::vector<std::string> lines() const;
};

/// Of this rank, whose device is `device`; of a trained model that is only used what forward passes take, without
/// dropout.
KernelReport report_kernels(const StepConfig& config, c10::Device device,
                            ModelPurpose purpose = ModelPurpose::kTraining);

/// {"types": "...", "processor": "...", "products": ..., "padded_dimensions": [...]}
Json to_json(const KernelReport& report);

}  // namespace vit_hybrid::train
