// Grids of blocks for what repeats over samples, planes or images.
#pragma once

#include <cstdint>

#include "src/base/vector_split.h"

namespace vit_hybrid {

/// Blocks along y for so many repeats: all of them, or as many as CUDA allows there; a kernel goes on in strides of
/// gridDim.y.
inline unsigned repeats_of_grid(int64_t repeats) {
  constexpr int64_t kMost = 65535;
  return static_cast<unsigned>(repeats < kMost ? repeats : kMost);
}

/// Blocks along x for the items of a split, each with so many of them; along y for its repeats.
inline dim3 grid_of(const VectorSplit& split, int64_t items_of_block, int64_t repeats) {
  return {static_cast<unsigned>(num_blocks_for(split.num_items(), items_of_block)), repeats_of_grid(repeats)};
}

}  // namespace vit_hybrid
