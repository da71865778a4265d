// The measured choice of an attention kernel, looked up in a table.
#pragma once

#include <optional>

#include "src/kernels/attention/device_attention.h"

namespace vit_hybrid::kernels {

/// The kernel that was chosen for the problem or, where none was, for the same problem with another number of samples
/// (the nearest; of two the larger): evaluation and last batches have their own, which nobody measures. Nothing where
/// the table has neither. Pure.
std::optional<DeviceAttention> find_attention(const KernelTable& table, const AttentionProblem& problem);

}  // namespace vit_hybrid::kernels
