// The peak of a device by its data sheet. Pure.
#pragma once

#include <string>

#include "src/config/run_config.h"

namespace vit_hybrid::train {

/// FLOP/s of a GPU's dense matrix products in this precision, by the maker's data sheet; 0 of a GPU that is not in the
/// table, or cannot compute in it. `name`: as its driver gives it, for instance "NVIDIA H200".
double gpu_peak_flops(const std::string& name, Precision precision);

}  // namespace vit_hybrid::train
