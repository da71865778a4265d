// The losses of the two tasks. B samples, C channels, H x W pixels, K classes.
#include "model/losses.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <tuple>
#include <vector>

#include "src/base/autograd_node.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/kernels/field_error.h"

namespace vit_hybrid::model {

at::Tensor fields_of(const at::Tensor& output, const VitOptions& options) {
  if (options.task == Task::kClassify) {
    return output;
  }
  return kernels::unpatchify(output, options.output_grid());
}

namespace {

kernels::FieldMeasure measure_of(FieldLoss loss, const FieldWeights& weights) {
  const bool is_absolute = loss == FieldLoss::kMeanAbsolute;
  return {is_absolute ? kernels::ErrorPower::kAbsolute : kernels::ErrorPower::kSquare, weights};
}

// [B], double, of the kernel's sums over a sample's errors and over its truth.
at::Tensor losses_of_samples(FieldLoss loss, const at::Tensor& sums, double num_values) {
  if (loss != FieldLoss::kRelativeL2) {
    return sums[0] / num_values;
  }
  const at::Tensor norms = sums.sqrt();
  return norms[0] / norms[1];
}

// [B], double: what the gradient of a sample's loss, times `scale`, is times its errors, or their signs. d|e| / de =
// e / |e|; at e = 0, where there is no gradient, 0 is taken.
at::Tensor gradient_factors(FieldLoss loss, const at::Tensor& sums, double num_values, double scale) {
  if (loss != FieldLoss::kRelativeL2) {
    return at::full_like(sums[0], (loss == FieldLoss::kMeanSquare ? 2.0 : 1.0) * scale / num_values);
  }
  const at::Tensor norms = sums.sqrt();
  const at::Tensor factors = scale / (norms[0] * norms[1]);
  return at::where(norms[0] == 0.0, at::zeros_like(factors), factors);
}

}  // namespace

at::Tensor field_loss(FieldLoss loss, const at::Tensor& prediction, const at::Tensor& target, int64_t global_batch,
                      const FieldWeights& weights) {
  const kernels::PatchGrid pixels{target.size(2), target.size(3), 1, 1, target.size(1)};
  return field_loss(loss, prediction.permute({0, 2, 3, 1}).flatten(1, 2), target, pixels, global_batch, weights);
}

at::Tensor field_loss(FieldLoss loss, const at::Tensor& patches, const at::Tensor& target,
                      const kernels::PatchGrid& grid, int64_t global_batch, const FieldWeights& weights) {
  const std::vector<int64_t> of_patches = {target.size(0), grid.num_patches(), grid.num_features()};
  const std::vector<int64_t> of_fields = {target.size(0), grid.channels, grid.height, grid.width};
  VH_ASSERT(patches.sizes() == at::IntArrayRef(of_patches) && target.sizes() == at::IntArrayRef(of_fields),
            str("patches [", join(patches.sizes()), "] of fields [", join(target.sizes()), "], expected [",
                join(of_patches), "] of [", join(of_fields), "]"));
  const auto type = at::toOpMathType(patches.scalar_type());
  const auto scale = 1.0 / static_cast<double>(global_batch);
  const auto num_values = static_cast<double>(grid.channels * grid.height * grid.width);
  const kernels::FieldMeasure measure = measure_of(loss, weights);
  const auto [predicted, truth, sums, value] = without_grad([&] {
    const at::Tensor values = patches.detach().contiguous();
    const at::Tensor fields = target.to(type).contiguous();
    const at::Tensor totals = kernels::field_sums(values, fields, grid, measure);
    const at::Tensor sum = losses_of_samples(loss, totals, num_values).sum();
    return std::make_tuple(values, fields, totals, (sum * scale).to(type));
  });
  const auto backward = [=, predicted = predicted, truth = truth, sums = sums](const at::Tensor& gradient) {
    const at::Tensor factors = gradient_factors(loss, sums, num_values, scale);
    return std::vector<at::Tensor>{kernels::field_gradient(predicted, truth, grid, factors * gradient, measure)};
  };
  return record("field_loss", value, {patches}, backward);
}

at::Tensor cross_entropy_loss(const at::Tensor& logits, const at::Tensor& labels, double label_smoothing,
                              int64_t global_batch) {
  constexpr int64_t kNoIgnoredLabel = -1;
  const at::ScalarType type = at::toOpMathType(logits.scalar_type());
  const at::Tensor target = labels.is_floating_point() ? labels.to(type) : labels;
  const at::Tensor sum =
      at::cross_entropy_loss(logits.to(type), target, {}, at::Reduction::Sum, kNoIgnoredLabel, label_smoothing);
  return sum / static_cast<double>(global_batch);
}

int64_t num_correct(const at::Tensor& logits, const at::Tensor& labels, int64_t k) {
  const at::NoGradGuard no_grad;
  const at::Tensor scores = logits.to(at::toOpMathType(logits.scalar_type()));
  const at::Tensor columns = labels.view({-1, 1});
  const at::Tensor of_label = scores.gather(1, columns);
  const at::Tensor classes = at::arange(scores.size(1), at::TensorOptions(at::kLong).device(scores.device()));
  // "Not smaller or equal", so that what is not a number never counts as correct.
  const at::Tensor larger = (scores <= of_label).logical_not_();
  const at::Tensor tied_before = (scores == of_label).logical_and_(classes < columns);
  const at::Tensor rank = larger.logical_or_(tied_before).sum(1);
  return (rank < k).sum().item<int64_t>();
}

}  // namespace vit_hybrid::model
