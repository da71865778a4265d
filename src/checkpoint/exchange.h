// Weights exchanged with other programs: from a checkpoint to a safetensors file under their names, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "model/vit_options.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/checkpoint/weight_names.h"
#include "src/checkpoint/weights_file.h"

namespace vit_hybrid::train {

/// Writes the parameters, checksums verified, as `type` (kDouble, kFloat, kHalf, kBFloat16). Error(kUsage) where the
/// model has no counterpart under these names or a finite value has none in `type`; Error(kBadData) for a damaged
/// checkpoint. Returns the number of tensors.
size_t export_weights(const CheckpointReader& checkpoint, const std::string& path, WeightNames names,
                      at::ScalarType type);

/// The weights of a safetensors file under our names.
struct ForeignWeights {
  NamedWeights weights;                    ///< float64 where all of the file's are, else float32
  std::optional<model::VitOptions> model;  ///< where the file says it, as those that export_weights() writes
  TrainingData data;                       ///< likewise
};

/// Error(kBadData) if it is no such file or holds a weight without a counterpart here, named with its nearest relative.
ForeignWeights read_foreign_weights(const std::string& path, WeightNames names);

}  // namespace vit_hybrid::train
