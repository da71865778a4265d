// A checkpoint of weights alone, written from whole tensors: what an import gives, and what a model is started from.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "src/checkpoint/format.h"

namespace vit_hybrid::comm {
class MpiGroup;
}

namespace vit_hybrid::train {

/// Whole tensors by canonical name.
using NamedWeights = std::map<std::string, at::Tensor>;

/// Writes the file under a temporary name and renames it. `weights` (host, contiguous, float32 or float64) are the same
/// on all ranks; rank 0 writes them. Error(kCannotCreate), Error(kIo). Collective over `group`.
void write_weights(const comm::MpiGroup& group, const std::string& path, const CheckpointInfo& info,
                   const NamedWeights& weights);

}  // namespace vit_hybrid::train
