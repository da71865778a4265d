// The climatology that anomalies are against.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "data/datasets/normalization.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/config/run_config.h"

namespace vit_hybrid::train {

/// The time means of the configuration (--time-means, else time_means.npy of --stats where that exists), normalised as
/// the fields of `shape` [C, H, W] are; an undefined tensor where there are none. Collective over `group`; errors are
/// agreed: Error(kMissingInput), Error(kBadData).
at::Tensor read_climatology(const DataConfig& config, const comm::MpiGroup& group, const std::vector<int64_t>& shape,
                            const data::Normalization& normalization);

}  // namespace vit_hybrid::train
