// Optimizers as their papers have them.
#include "tests/support/textbook_optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

namespace vit_hybrid::testing {

namespace {

double length(const at::Tensor& x) {
  return std::sqrt((x * x).sum().item<double>());
}

}  // namespace

TextbookOptimizer::TextbookOptimizer(const zero::OptimizerOptions& options, const at::Tensor& weights, bool is_matrix)
    : options_(options),
      is_matrix_(is_matrix || options.decay_vectors),
      decay_(is_matrix_ ? options.weight_decay : 0.0),
      w_(weights.to(at::kDouble).clone()) {
  const bool has_moments = options.kind != zero::OptimizerKind::kSgd && options.kind != zero::OptimizerKind::kLars;
  if (has_moments) {
    states_["exp_avg"] = at::zeros_like(w_);
    states_["exp_avg_sq"] = at::zeros_like(w_);
  } else if (options.momentum > 0.0) {
    states_["momentum_buffer"] = at::zeros_like(w_);
  }
}

void TextbookOptimizer::step(const at::Tensor& gradient, double lr) {
  t_ += 1;
  switch (options_.kind) {
    case zero::OptimizerKind::kAdam:
    case zero::OptimizerKind::kAdamW:
      return adam(gradient, lr);
    case zero::OptimizerKind::kSgd:
      return momentum(gradient + decay_ * w_, lr);
    case zero::OptimizerKind::kLamb:
      return lamb(gradient, lr);
    case zero::OptimizerKind::kLars:
      return lars(gradient, lr);
  }
}

// Adam's, from the moments with this gradient.
at::Tensor TextbookOptimizer::direction(const at::Tensor& gradient) {
  const double b1 = options_.beta1, b2 = options_.beta2;
  at::Tensor& m = states_.at("exp_avg");
  at::Tensor& v = states_.at("exp_avg_sq");
  m = b1 * m + (1 - b1) * gradient;
  v = b2 * v + (1 - b2) * gradient * gradient;
  return m / (1 - std::pow(b1, t_)) / ((v / (1 - std::pow(b2, t_))).sqrt() + options_.eps);
}

void TextbookOptimizer::adam(const at::Tensor& gradient, double lr) {
  if (options_.kind == zero::OptimizerKind::kAdam) {
    w_ = w_ - lr * direction(gradient + decay_ * w_);
  } else {
    w_ = w_ * (1 - lr * decay_) - lr * direction(gradient);
  }
}

void TextbookOptimizer::momentum(const at::Tensor& gradient, double lr) {
  if (options_.momentum == 0.0) {
    w_ = w_ - lr * gradient;
    return;
  }
  at::Tensor& buffer = states_.at("momentum_buffer");
  buffer = t_ == 1 ? gradient.clone() : options_.momentum * buffer + gradient;
  w_ = w_ - lr * (options_.nesterov ? gradient + options_.momentum * buffer : buffer);
}

// Algorithm 2 of arXiv:1904.00962.
void TextbookOptimizer::lamb(const at::Tensor& gradient, double lr) {
  const at::Tensor update = direction(gradient) + decay_ * w_;
  const bool is_scaled = is_matrix_ && length(w_) > 0 && length(update) > 0;
  w_ = w_ - lr * (is_scaled ? length(w_) / length(update) : 1.0) * update;
}

// Algorithm 1 of arXiv:1708.03888, with the learning rate outside of the buffer.
void TextbookOptimizer::lars(const at::Tensor& gradient, double lr) {
  const bool is_scaled = is_matrix_ && length(w_) > 0 && length(gradient) > 0;
  const double local =
      is_scaled ? options_.trust_coefficient * length(w_) / (length(gradient) + decay_ * length(w_)) : 1.0;
  momentum(local * (gradient + decay_ * w_), lr);
}

}  // namespace vit_hybrid::testing
