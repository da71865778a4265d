// What the shapes of weights tell of the model that they belong to. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/vit_options.h"

namespace vit_hybrid::train {

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

}  // namespace vit_hybrid::train
