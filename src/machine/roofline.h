// The roofline of the machine: matmul rates as measured, and as the processor's peak has them.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <optional>
#include <string>

#include "src/config/run_config.h"

namespace vit_hybrid::train {

/// FLOP/s of a GPU's dense matrix products in this precision, by the maker's data sheet; 0 of a GPU that is not in the
/// table, or cannot compute in it. `name`: as its driver gives it, for instance "NVIDIA H200".
double gpu_peak_flops(const std::string& name, Precision precision);

/// How long trainings and benchmarks measure a roof.
inline constexpr double kRoofSeconds = 0.3;

/// FLOP/s of the largest square product y = x W^T of this type that is fast enough to be measured several times within
/// `seconds` of wall time, by the kernel that linear layers take, with a weight that is packed already: the mean over
/// that time, so that ranks that share cores get what each has of them. On a GPU by events, and by the fastest of its
/// library's kernels, which is measured before (and is in kernel_table() only meanwhile). Nothing where the device has
/// no memory left for it. `ready` is called once in any case, when only the measuring is left: ranks that meet in it
/// measure at the same time.
std::optional<double> measure_matmul_roof(
    c10::Device device, at::ScalarType type, double seconds, const std::function<void()>& ready = [] {});

}  // namespace vit_hybrid::train
