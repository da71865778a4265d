// The patch embedding as one matrix product over unfolded patches.
// Shapes: B samples, C channels, H x W pixels, P patches, N tokens, D features.
#include "model/patch_embedding.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>

#include "src/base/autograd_node.h"
#include "src/kernels/dropout.h"

namespace vit_hybrid::model {

PatchEmbedding::PatchEmbedding(const VitOptions& options, tensor::ParameterBuffer& buffer,
                               const comm::Communicator& tensor_group)
    : options_(options),
      projection_(buffer, "patch_embed.proj", tensor::Terms::kWeightAndBias, tensor_group.size()),
      positions_(buffer.parameter("pos_embed")) {
  if (options.has_class_token()) {
    class_token_ = buffer.parameter("cls_token");
  }
}

at::Tensor PatchEmbedding::patches(const at::Tensor& x) const {
  const bool is_image = options_.task == Task::kClassify;
  return kernels::patchify(x, options_.input_grid(), is_image ? kernels::Padding::kZero : kernels::Padding::kPlanet);
}

at::Tensor PatchEmbedding::embed(const at::Tensor& x) {
  const at::Tensor projected_BPD = projection_.forward(patches(x), tensor::Terms::kWeightAndBias);
  if (!options_.has_class_token()) {
    return projected_BPD.add_(positions_.value);
  }
  const int64_t num_patches = options_.num_patches();
  const at::Tensor z_BND = at::empty({x.size(0), num_patches + 1, options_.embed_dim}, projected_BPD.options());
  z_BND.narrow(1, 0, 1).copy_(at::add(class_token_.value, positions_.value.narrow(1, 0, 1)));
  at::Tensor patches_BPD = z_BND.narrow(1, 1, num_patches);
  at::add_out(patches_BPD, projected_BPD, positions_.value.narrow(1, 1, num_patches));
  return z_BND;
}

void PatchEmbedding::add_gradients(const at::Tensor& dz_BND, const at::Tensor& x,
                                   const tensor::StepContext& context) const {
  const auto type = at::toOpMathType(dz_BND.scalar_type());
  const at::Tensor sum_1ND = dz_BND.sum({0}, true, type);
  positions_.gradient.add_(sum_1ND);
  context.ready(positions_.index);
  at::Tensor dprojected_BPD = dz_BND;
  if (options_.has_class_token()) {
    class_token_.gradient.add_(sum_1ND.narrow(1, 0, 1));
    context.ready(class_token_.index);
    dprojected_BPD = dz_BND.narrow(1, 1, options_.num_patches()).contiguous();
  }
  // The patches are unfolded again: a copy of the image in memory for the whole step would cost more.
  projection_.add_gradients(dprojected_BPD, patches(x), tensor::Terms::kWeightAndBias, context);
}

ResidualStream PatchEmbedding::forward(ResidualStream stream, const tensor::StepContext& context) {
  const at::Tensor& x = stream.x;
  const at::Tensor z_BND = without_grad([&] { return embed(x); });
  const auto backward = [this, x, &context](const at::Tensor& gradient) {
    add_gradients(gradient.contiguous(), x, context);
    return std::vector<at::Tensor>{at::Tensor()};
  };
  const at::Tensor recorded = record("PatchEmbedding", z_BND, {x}, backward);
  const int64_t dim = options_.embed_dim;
  return {kernels::dropout(recorded, {0, dim}, dim, {options_.dropout, 0, kernels::DropSite::kPositions}, context)};
}

}  // namespace vit_hybrid::model
