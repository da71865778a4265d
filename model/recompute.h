// Recompute: which activations of a block backward computes again instead of keeping them.
#pragma once

namespace vit_hybrid::model {

/// kSelective: the input of attention (qkv) and of GELU; kFull: all of a block but its input (V. Korthikanti et al.,
/// "Reducing Activation Recomputation in Large Transformer Models", MLSys 2023). No bit of a result depends on it.
enum class Recompute { kNone, kSelective, kFull };

}  // namespace vit_hybrid::model
