// The losses of the two tasks. B samples, C channels, H x W pixels, K classes.
#include "model/losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "parallel/tensor/own_node.h"

namespace vit_hybrid::model {

namespace {

// By sample, in double: sums over millions of pixels.
at::Tensor sample_norms(const at::Tensor& x) {
  return at::linalg_vector_norm(x, 2, at::IntArrayRef{1, 2, 3}, false, at::kDouble);
}

at::ScalarType loss_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace

at::Tensor relative_l2_loss(const at::Tensor& prediction, const at::Tensor& target, int64_t global_batch) {
  const auto scale = 1.0 / static_cast<double>(global_batch);
  const auto [loss, error_norms, target_norms] = tensor::without_grad([&] {
    const at::Tensor errors = sample_norms(at::sub(prediction, target));
    const at::Tensor targets = sample_norms(target);
    const at::Tensor sum = (errors / targets).sum() * scale;
    return std::make_tuple(sum.to(loss_type(prediction)), errors, targets);
  });
  // d|e| / de = e / |e|; at e = 0, where there is no gradient, 0 is taken.
  const auto backward = [prediction, target, scale, error_norms = error_norms,
                         target_norms = target_norms](const at::Tensor& dloss) {
    const at::Tensor factors = scale / (error_norms * target_norms);
    const at::Tensor finite = at::where(error_norms == 0.0, at::zeros_like(factors), factors);
    const at::Tensor by_sample = (finite * dloss).to(prediction.scalar_type()).view({-1, 1, 1, 1});
    return std::vector<at::Tensor>{at::sub(prediction, target).mul_(by_sample)};
  };
  return tensor::record("relative_l2_loss", loss, {prediction}, backward);
}

at::Tensor cross_entropy_loss(const at::Tensor& logits, const at::Tensor& labels, double label_smoothing,
                              int64_t global_batch) {
  constexpr int64_t kNoIgnoredLabel = -1;
  const at::ScalarType type = loss_type(logits);
  const at::Tensor target = labels.is_floating_point() ? labels.to(type) : labels;
  const at::Tensor sum =
      at::cross_entropy_loss(logits.to(type), target, {}, at::Reduction::Sum, kNoIgnoredLabel, label_smoothing);
  return sum / static_cast<double>(global_batch);
}

int64_t num_correct(const at::Tensor& logits, const at::Tensor& labels, int64_t k) {
  const at::NoGradGuard no_grad;
  const at::Tensor columns = labels.view({-1, 1});
  const at::Tensor of_label = logits.gather(1, columns);
  const at::Tensor classes = at::arange(logits.size(1), at::TensorOptions(at::kLong).device(logits.device()));
  // "Not smaller or equal", so that what is not a number never counts as correct.
  const at::Tensor larger = (logits <= of_label).logical_not_();
  const at::Tensor tied_before = (logits == of_label).logical_and_(classes < columns);
  const at::Tensor rank = larger.logical_or_(tied_before).sum(1);
  return (rank < k).sum().item<int64_t>();
}

}  // namespace vit_hybrid::model
