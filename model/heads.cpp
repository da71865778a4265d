// Pooling, norms, linears and un-patchify of the heads.
#include "model/heads.h"

#include <ATen/ops/mean.h>

namespace vit_hybrid::model {

namespace {

// [B, P, p p C] -> [B, C, H, W]: the features of a token run (row, column, channel), channel fastest.
at::Tensor unpatchify(const at::Tensor& patches, const VitOptions& options) {
  const int64_t patch = options.patch_size;
  const int64_t num_samples = patches.size(0);
  return patches.view({num_samples, options.grid_height(), options.grid_width(), patch, patch, options.out_channels})
      .permute({0, 5, 1, 3, 2, 4})
      .reshape({num_samples, options.out_channels, options.image_height, options.image_width});
}

}  // namespace

ForecastHead::ForecastHead(const VitOptions& options, tensor::ParameterBuffer& buffer)
    : options_(options),
      norm_(buffer, final_norm_name(options), options.norm_eps),
      head_(buffer, "head", tensor::Terms::kWeight) {}

at::Tensor ForecastHead::forward(const at::Tensor& x, const tensor::StepContext& context) {
  return unpatchify(head_.forward(norm_.forward(x, context), context), options_);
}

ClassifyHead::ClassifyHead(const VitOptions& options, tensor::ParameterBuffer& buffer)
    : options_(options),
      norm_(buffer, final_norm_name(options), options.norm_eps),
      head_(buffer, "head", tensor::Terms::kWeightAndBias) {}

at::Tensor ClassifyHead::forward(const at::Tensor& x, const tensor::StepContext& context) {
  const at::Tensor pooled = options_.pooling == Pooling::kToken ? x.select(1, 0).contiguous() : x.mean(1);
  return head_.forward(norm_.forward(pooled, context), context);
}

}  // namespace vit_hybrid::model
