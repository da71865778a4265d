// The roof of matrix products: what this rank's device reaches in them at best.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace vit_hybrid::train {

/// FLOP/s of the largest square product y = x W^T of this type that is fast enough to be measured several times within
/// `seconds` of wall time, by the kernel that linear layers take, with a weight that is packed already: the best of
/// windows of several products, so that ranks that share cores get what each has of them. Nothing where the device has
/// no memory left for it. On a GPU by events.
std::optional<double> measure_matmul_roof(c10::Device device, at::ScalarType type, double seconds);

}  // namespace vit_hybrid::train
