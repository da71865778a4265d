// A model read off the shapes of its weights, and the comparison of shapes with a model.
#include "src/checkpoint/model_of_weights.h"

#include <cmath>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

using model::Pooling;
using model::Task;
using model::VitOptions;
using Shape = std::vector<int64_t>;

constexpr int64_t kMostSize = 1 << 24;  // of a dim: products of three stay within 64 bits

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(ErrorClass::kBadData, str(where, ": ", what),
              "another model: check the model options, and whose names they are");
}

// The shape of a weight that must be there, of `dims` dims of sensible sizes.
Shape shape_of(const WeightShapes& shapes, const std::string& name, size_t dims, const std::string& where) {
  const auto found = shapes.find(name);
  if (found == shapes.end()) {
    refuse(where, str("there is no weight ", name));
  }
  bool sensible = found->second.size() == dims;
  for (const int64_t extent : found->second) {
    sensible = sensible && extent >= 1 && extent <= kMostSize;
  }
  if (!sensible) {
    refuse(where, str("the weight ", name, " is [", join(found->second), "], which no ViT's is"));
  }
  return found->second;
}

int64_t depth_of(const WeightShapes& shapes) {
  int64_t depth = 0;
  while (shapes.count(str("blocks.", depth, ".norm1.weight")) != 0) {
    ++depth;
  }
  return depth;
}

void read_head(const WeightShapes& shapes, const std::string& where, VitOptions& options) {
  const int64_t rows = shape_of(shapes, "head.weight", 2, where)[0];
  if (options.task == Task::kClassify) {
    options.num_classes = rows;
    return;
  }
  const int64_t patch_values = options.patch_size * options.patch_size;
  if (rows % patch_values != 0) {
    refuse(where, str("the weight head.weight has ", rows, " rows, no multiple of ", patch_values, " values a patch"));
  }
  options.out_channels = rows / patch_values;
}

void read_image(const WeightShapes& shapes, const std::string& where, VitOptions& options) {
  const int64_t tokens = shape_of(shapes, "pos_embed", 3, where)[1] - (options.has_class_token() ? 1 : 0);
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(tokens))));
  const bool is_square = options.task == Task::kClassify && side * side == tokens;
  options.image_height = is_square ? side * options.patch_size : 0;
  options.image_width = options.image_height;
}

}  // namespace

VitOptions model_of_weights(const WeightShapes& shapes, const std::string& where) {
  VitOptions options;
  options.task = shapes.count("head.bias") != 0 ? Task::kClassify : Task::kForecast;
  options.pooling = shapes.count("cls_token") != 0 ? Pooling::kToken : Pooling::kMean;
  options.depth = depth_of(shapes);
  const Shape patch = shape_of(shapes, "patch_embed.proj.weight", 4, where);
  options.embed_dim = patch[0];
  options.in_channels = patch[1];
  options.patch_size = patch[2];
  options.mlp_hidden = shape_of(shapes, "blocks.0.mlp.fc1.weight", 2, where)[0];
  options.num_heads = 0;
  read_head(shapes, where, options);
  read_image(shapes, where, options);
  return options;
}

void check_weights(const VitOptions& options, const WeightShapes& shapes, const std::string& where) {
  // First, for a damaged depth would make a list without end.
  if (depth_of(shapes) != options.depth) {
    refuse(where, str("there are weights of ", depth_of(shapes), " blocks, the model's depth is ", options.depth));
  }
  const auto specs = model::parameter_specs(options, {0, options.num_units()}, 0, 0, 1);
  WeightShapes unused = shapes;
  for (const auto& spec : specs) {
    const auto found = shapes.find(spec.name);
    if (found == shapes.end()) {
      refuse(where, str("there is no weight ", spec.name, " [", join(spec.global_shape), "]"));
    }
    if (found->second != spec.global_shape) {
      refuse(where, str("the weight ", spec.name, " is [", join(found->second), "], the model's is [",
                        join(spec.global_shape), "]"));
    }
    unused.erase(spec.name);
  }
  if (!unused.empty()) {
    refuse(where, str("the weight ", unused.begin()->first, " [", join(unused.begin()->second),
                      "] has no place in the model"));
  }
}

}  // namespace vit_hybrid::train
