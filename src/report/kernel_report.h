// Which kernels a run takes, and what the padding of its dimensions costs.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/vit_options.h"
#include "src/config/run_config.h"
#include "src/machine/model_memory.h"
#include "src/report/metrics_log.h"

namespace vit_hybrid::train {

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
KernelReport report_kernels(const RunConfig& config, c10::Device device,
                            ModelPurpose purpose = ModelPurpose::kTraining);

/// {"types": "...", "processor": "...", "products": ..., "padded_dimensions": [...]}
Json to_json(const KernelReport& report);

}  // namespace vit_hybrid::train
