// VitOptions: the numbers that define a Vision Transformer, its presets and its checks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/kernels/gelu.h"
#include "src/kernels/patch_grid.h"

namespace vit_hybrid::model {

enum class Task { kForecast, kClassify };
enum class Pooling { kToken, kMean };
/// Of predicted fields: || yhat - y ||_2 / || y ||_2 of a sample, or the mean of (yhat - y)^2 or |yhat - y| over its
/// values.
enum class FieldLoss { kRelativeL2, kMeanSquare, kMeanAbsolute };

/// Options of a pre-norm ViT (A. Dosovitskiy et al., ICLR 2021, section 3.1). Defaults: weather-short.
struct VitOptions {
  Task task = Task::kForecast;
  int64_t image_height = 360;
  int64_t image_width = 720;
  int64_t patch_height = 8;
  int64_t patch_width = 8;
  int64_t in_channels = 20;
  int64_t out_channels = 20;          ///< kForecast
  int64_t num_classes = 1000;         ///< kClassify
  Pooling pooling = Pooling::kToken;  ///< kClassify
  int64_t embed_dim = 384;
  int64_t depth = 6;
  int64_t num_heads = 8;
  int64_t mlp_hidden = 1536;
  kernels::GeluKind gelu = kernels::GeluKind::kErf;
  double dropout = 0.0;  ///< after positions, projection and MLP (timm's proj_drop), and pos_drop
  double attention_dropout = 0.0;
  double drop_path = 0.0;                   ///< linear ramp 0 .. drop_path over depth
  double label_smoothing = 0.1;             ///< kClassify
  FieldLoss loss = FieldLoss::kRelativeL2;  ///< kForecast
  double norm_eps = 1e-6;

  kernels::PatchGrid input_grid() const { return grid_of(in_channels); }
  kernels::PatchGrid output_grid() const { return grid_of(out_channels); }  ///< kForecast
  int64_t num_patches() const { return input_grid().num_patches(); }
  bool has_class_token() const { return task == Task::kClassify && pooling == Pooling::kToken; }
  /// Tokens a block sees, class token included.
  int64_t num_tokens() const { return num_patches() + (has_class_token() ? 1 : 0); }
  int64_t head_dim() const { return embed_dim / num_heads; }
  /// Layer units of the pipeline: patch embedding, the blocks, the head.
  int64_t num_units() const { return depth + 2; }

 private:
  kernels::PatchGrid grid_of(int64_t channels) const {
    return {image_height, image_width, patch_height, patch_width, channels};
  }
};

/// Options of a named model: weather-short, weather-base, weather-d12, weather-mp, weather-mp-patch4, vit-ti16,
/// vit-s16, vit-b16, vit-l16, vit-h14, vit-g14, vit-gg14. An unknown name is Error(kUsage) with the nearest one.
VitOptions preset(const std::string& name);
std::vector<std::string> preset_names();

/// Every problem of the options for a tensor degree and pipeline degree, each a sentence with the allowed values.
std::vector<std::string> validate(const VitOptions& options, int tensor_size, int pipeline_size);

}  // namespace vit_hybrid::model
