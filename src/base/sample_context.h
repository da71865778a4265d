// SampleContext: what random draws of a micro-batch are keyed by.
#pragma once

#include <cstdint>
#include <vector>

namespace vit_hybrid {

enum class Mode { kTraining, kEvaluation };

/// Of one micro-batch: draws are functions of these, never of the rank.
struct SampleContext {
  uint64_t seed = 0;
  int64_t step = 0;
  std::vector<int64_t> samples;  ///< global numbers of the micro-batch's samples (epoch position independent keys)
  Mode mode = Mode::kEvaluation;

  bool training() const { return mode == Mode::kTraining; }
};

}  // namespace vit_hybrid
