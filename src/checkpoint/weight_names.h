// The names of a ViT's weights in other programs, as tables. Pure.
#pragma once

#include <string>
#include <vector>

#include "model/vit_options.h"

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

}  // namespace vit_hybrid::train
