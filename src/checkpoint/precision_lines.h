// precision_lines(): in which precision the run counted that wrote a checkpoint, and its loss scale.
#pragma once

#include <string>
#include <vector>

#include "src/checkpoint/format.h"

namespace vit_hybrid::train {

/// "precision   fp16" and "loss scale  fixed 1e+12, 3 steps skipped"; nothing of what the checkpoint does not know (an
/// import has no run) or did not need. Pure.
std::vector<std::string> precision_lines(const CheckpointInfo& info);

}  // namespace vit_hybrid::train
