// Weights for and from other programs: their names, their models, their files.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/vit_options.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/checkpoint/format.h"

namespace vit_hybrid::comm {
class MpiGroup;
}

namespace vit_hybrid::train {

/// Whose names: timm's VisionTransformer (they are ours), torchvision's, or those of the ViT of NERSC's tutorials.
enum class WeightNames { kTimm, kTorchvision, kNersc };
std::vector<std::string> weight_names_words();  ///< "timm", "torchvision", "nersc", in order of the values

/// Why a model has no counterpart there ("torchvision's ViT has square images only"); empty if it has one.
std::string no_counterpart(WeightNames names, const model::VitOptions& options);

/// Their name of one of our parameters. A name that no ViT of ours has is a broken invariant.
std::string foreign_name(WeightNames names, const std::string& ours);

/// Our name of one of theirs, or empty if there is none. What PyTorch's wrappers put before names ("module.",
/// "_orig_mod.") is left out.
std::string our_name(WeightNames names, const std::string& foreign);

/// Shapes by canonical name.
using WeightShapes = std::map<std::string, std::vector<int64_t>>;

/// The model with everything that shapes tell: task, pooling, depth, patch size, channels, classes and widths. Not
/// told, and 0 in the result, are the number of heads, and the image's height and width, except where a classifier's
/// tokens make a square. Error(kBadData), which names `where`, if a weight that must be there is not, or is of no ViT's
/// shape.
model::VitOptions model_of_weights(const WeightShapes& shapes, const std::string& where);

/// Error(kBadData) with the first weight of the model that is not there or has another shape, or the first that the
/// model has not.
void check_weights(const model::VitOptions& options, const WeightShapes& shapes, const std::string& where);

/// Whole tensors by canonical name.
using NamedWeights = std::map<std::string, at::Tensor>;

/// Writes the file under a temporary name and renames it. `weights` (host, contiguous, float32 or float64) are the same
/// on all ranks; rank 0 writes them. Error(kCannotCreate), Error(kIo). Collective over `group`.
void write_weights(const comm::MpiGroup& group, const std::string& path, const CheckpointInfo& info,
                   const NamedWeights& weights);

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
