// partition_stages(): cuts the layers of a model into pipeline stages of nearly equal cost.
#pragma once

#include <vector>

#include "src/base/partition.h"

namespace vit_hybrid::pipeline {

/// Contiguous ranges of units (`costs`, any unit, not negative), one a stage and each with at least one unit, such that
/// the largest cost of a stage is the smallest possible. Of equal solutions it is the one nearest to the even split
/// Partition(units, stages). More stages than units, or less than one, is Error(kUsage) with the allowed range.
std::vector<Range> partition_stages(const std::vector<double>& costs, int num_stages);

}  // namespace vit_hybrid::pipeline
