// The roof of matrix products: what this rank's device reaches in them at best.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <optional>

namespace vit_hybrid::train {

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
