// The losses against their formulas, written out sample by sample, and their gradients against LibTorch's autograd.
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>

#include <limits>

#include "model/losses.h"
#include "src/kernels/field_error.h"
#include "tests/support/compare.h"
#include "tests/support/rounding.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

constexpr double kLossBound = 1e-14;
constexpr double kFloatBound = 1e-6;  // a few units of fp32's 6e-8

struct LossAndGradient {
  double loss;
  at::Tensor gradient;
};

template <class Loss>
LossAndGradient differentiate(const at::Tensor& x, Loss loss) {
  const at::Tensor leaf = x.detach().clone().requires_grad_();
  const at::Tensor value = loss(leaf);
  REQUIRE(value.dim() == 0);
  torch::autograd::backward({value});
  return {value.item<double>(), leaf.grad()};
}

at::Tensor plain_relative_l2(const at::Tensor& prediction, const at::Tensor& target, double global_batch) {
  at::Tensor sum = at::zeros({}, prediction.options());
  for (int64_t n = 0; n < prediction.size(0); ++n) {
    const at::Tensor error = prediction[n] - target[n];
    sum = sum + (error * error).sum().sqrt() / (target[n] * target[n]).sum().sqrt();
  }
  return sum / global_batch;
}

}  // namespace

TEST_CASE("losses: the mean square is the formula, value and gradient, of fields and of cut patches") {
  const auto plain = [](const at::Tensor& prediction, const at::Tensor& target) {
    at::Tensor sum = at::zeros({}, prediction.options());
    for (int64_t n = 0; n < prediction.size(0); ++n) {
      sum = sum + (prediction[n] - target[n]).square().mean();
    }
    return sum / 17.0;
  };
  const auto kind = model::FieldLoss::kMeanSquare;
  const kernels::PatchGrid grid{5, 7, 2, 3, 4};
  const at::Tensor patches = normal_tensor({3, grid.num_patches(), grid.num_features()}, 1);
  const at::Tensor target = normal_tensor({3, 4, 5, 7}, 2);
  const auto reference =
      differentiate(patches, [&](const auto& x) { return plain(kernels::unpatchify(x, grid), target); });
  const auto ours = differentiate(patches, [&](const auto& x) { return model::field_loss(kind, x, target, grid, 17); });
  CHECK(std::abs(ours.loss - reference.loss) <= kLossBound * reference.loss);
  CHECK(relative_error(ours.gradient, reference.gradient) <= kLossBound);

  const at::Tensor fields = kernels::unpatchify(patches, grid);
  const auto of_fields = differentiate(fields, [&](const auto& x) { return model::field_loss(kind, x, target, 17); });
  CHECK(std::abs(of_fields.loss - reference.loss) <= kLossBound * reference.loss);
  CHECK(relative_error(of_fields.gradient, (fields - target) * (2.0 / (17.0 * 4 * 5 * 7))) <= kLossBound);

  const auto same = differentiate(target, [&](const auto& x) { return model::field_loss(kind, x, target, 17); });
  CHECK(same.loss == 0.0);
  CHECK(same.gradient.abs().max().item<double>() == 0.0);
}

TEST_CASE("losses: relative L2 is the formula, value and gradient") {
  const at::Tensor prediction = normal_tensor({3, 2, 4, 5}, 1);
  const at::Tensor target = normal_tensor({3, 2, 4, 5}, 2);
  const auto reference = differentiate(prediction, [&](const auto& x) { return plain_relative_l2(x, target, 17); });
  const auto ours = differentiate(
      prediction, [&](const auto& x) { return model::field_loss(model::FieldLoss::kRelativeL2, x, target, 17); });
  CHECK(std::abs(ours.loss - reference.loss) <= kLossBound * reference.loss);
  CHECK(relative_error(ours.gradient, reference.gradient) <= kLossBound);

  const auto single = differentiate(prediction.to(at::kFloat), [&](const auto& x) {
    return model::field_loss(model::FieldLoss::kRelativeL2, x, target.to(at::kFloat), 17);
  });
  CHECK(std::abs(single.loss - reference.loss) <= kFloatBound * reference.loss);
  CHECK(relative_error(single.gradient, reference.gradient) <= kFloatBound);
}

TEST_CASE("losses: parts of a batch add up to the batch") {
  const at::Tensor prediction = normal_tensor({5, 2, 4, 4}, 3);
  const at::Tensor target = normal_tensor({5, 2, 4, 4}, 4);
  const auto part = [&](int64_t begin, int64_t size) {
    return model::field_loss(model::FieldLoss::kRelativeL2, prediction.narrow(0, begin, size),
                             target.narrow(0, begin, size), 5)
        .item<double>();
  };
  const double whole = part(0, 5);
  CHECK(std::abs(part(0, 2) + part(2, 3) - whole) <= kLossBound * whole);
  CHECK(part(0, 0) == 0.0);
}

TEST_CASE("losses: a perfect forecast has loss and gradient zero, not NaN") {
  const at::Tensor target = normal_tensor({2, 1, 4, 4}, 5);
  at::Tensor prediction = target.clone();
  prediction[1] += 1.0;
  const auto ours = differentiate(
      prediction, [&](const auto& x) { return model::field_loss(model::FieldLoss::kRelativeL2, x, target, 2); });
  CHECK(ours.gradient[0].abs().max().item<double>() == 0.0);
  CHECK(ours.gradient[1].abs().min().item<double>() > 0.0);
}

TEST_CASE("losses: the sum of a long field keeps fp32 exact") {
  // 2^24 + 2 ones would stop growing in a plain fp32 sum.
  const at::Tensor ones = at::full({1, 2, 2049, 4096}, 1.0, at::kFloat);
  const double loss = model::field_loss(model::FieldLoss::kRelativeL2, ones * 3.0, ones, 1).item<double>();
  CHECK(loss == doctest::Approx(2.0).epsilon(1e-7));
}

TEST_CASE("losses: cross-entropy with label smoothing is the formula, value and gradient") {
  const at::Tensor logits = normal_tensor({4, 6}, 6) * 3.0;
  const at::Tensor labels = at::tensor({5, 0, 2, 2}, at::kLong);
  constexpr double kSmoothing = 0.1;
  const auto formula = [&](const at::Tensor& x) {
    const at::Tensor log_p = at::log_softmax(x, 1);
    at::Tensor sum = at::zeros({}, x.options());
    for (int64_t n = 0; n < 4; ++n) {
      for (int64_t k = 0; k < 6; ++k) {
        const bool correct = labels[n].item<int64_t>() == k;
        sum = sum - log_p[n][k] * (kSmoothing / 6 + (correct ? 1 - kSmoothing : 0.0));
      }
    }
    return sum / 9.0;
  };
  const auto reference = differentiate(logits, formula);
  const auto ours =
      differentiate(logits, [&](const auto& x) { return model::cross_entropy_loss(x, labels, kSmoothing, 9); });
  CHECK(std::abs(ours.loss - reference.loss) <= kLossBound * reference.loss);
  CHECK(relative_error(ours.gradient, reference.gradient) <= kLossBound);
  CHECK(model::cross_entropy_loss(logits.narrow(0, 0, 0), labels.narrow(0, 0, 0), kSmoothing, 9).item<double>() == 0.0);
}

TEST_CASE("losses: top-k counts, ties to the lower class, NaN never") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor logits = at::tensor({0.1, 0.9, 0.5, 0.2,  //
                                        0.5, 0.5, 0.5, 0.5,  //
                                        0.5, 0.5, 0.5, 0.5,  //
                                        nan, 0.5, 0.4, 0.3,  //
                                        nan, nan, nan, nan})
                                .view({5, 4});
  const at::Tensor labels = at::tensor({2, 0, 1, 1, 0}, at::kLong);
  CHECK(model::num_correct(logits, labels, 1) == 1);  // the first of the tied ones
  CHECK(model::num_correct(logits, labels, 2) == 4);
  CHECK(model::num_correct(logits, labels, 4) == 4);
  CHECK(model::num_correct(logits.narrow(0, 0, 0), labels.narrow(0, 0, 0), 1) == 0);
}

TEST_CASE("losses: the cross-entropy of mixed classes is the mean of those of the classes") {
  const at::Tensor logits = normal_tensor({2, 5}, 3);
  const at::Tensor first = at::tensor({3, 0}, at::kLong);
  const at::Tensor second = at::tensor({1, 0}, at::kLong);
  constexpr double kShare = 0.3;
  at::Tensor mixed = at::zeros({2, 5}, at::kFloat);
  mixed[0][3] = kShare;
  mixed[0][1] = 1.0 - kShare;
  mixed[1][0] = 1.0;
  for (const double smoothing : {0.0, 0.1}) {
    const auto of = [&](const at::Tensor& labels) {
      return differentiate(logits, [&](const auto& x) { return model::cross_entropy_loss(x, labels, smoothing, 7); });
    };
    const auto ours = of(mixed);
    const auto a = of(first);
    const auto b = of(second);
    CHECK(ours.loss == doctest::Approx(kShare * a.loss + (1.0 - kShare) * b.loss).epsilon(1e-7));
    const at::Tensor expected = kShare * a.gradient + (1.0 - kShare) * b.gradient;
    CHECK(relative_error(ours.gradient, expected) <= 1e-7);  // the shares are fp32
  }
}

namespace {

constexpr double kLossScale = 65536.0;

// Whole patches, and such as are cut in the south, in the east, and in both.
const std::vector<kernels::PatchGrid> kGrids = {
    {12, 20, 4, 4, 6}, {11, 20, 4, 5, 3}, {12, 19, 3, 4, 5}, {10, 17, 4, 7, 1}};

// Patches as the head of each type gives them, and true fields.
struct Forecast {
  explicit Forecast(at::ScalarType type, const kernels::PatchGrid& given = kGrids.front(), int64_t num_samples = 3)
      : grid(given),
        patches(normal_tensor({num_samples, grid.num_patches(), grid.num_features()}, 1).to(type)),
        fields(normal_tensor({num_samples, grid.channels, grid.height, grid.width}, 2).to(at::toOpMathType(type))) {}

  // The formula in fp64 of just these values, and its gradient times `dloss`.
  LossAndGradient reference(double dloss) const {
    const auto formula = [&](const at::Tensor& x) {
      return plain_relative_l2(kernels::unpatchify(x, grid), fields.to(at::kDouble), 5) * dloss;
    };
    auto both = differentiate(patches.to(at::kDouble), formula);
    both.loss /= dloss;
    return both;
  }
  LossAndGradient ours(double dloss) const {
    return differentiate_from(
        patches, [&](const auto& x) { return model::field_loss(model::FieldLoss::kRelativeL2, x, fields, grid, 5); },
        dloss);
  }

  static LossAndGradient differentiate_from(const at::Tensor& x, const auto& loss, double dloss) {
    const at::Tensor leaf = x.detach().clone().requires_grad_();
    const at::Tensor value = loss(leaf);
    torch::autograd::backward({value}, {at::full({}, dloss, value.options())});
    return {value.template item<double>(), leaf.grad()};
  }

  kernels::PatchGrid grid;
  at::Tensor patches;
  at::Tensor fields;
};

}  // namespace

TEST_CASE("losses: relative L2 of patches, whatever their type, is the formula with its gradient rounded once") {
  for (const auto type : kFloatTypes) {
    CAPTURE(c10::toString(type));
    for (const kernels::PatchGrid& grid : kGrids) {
      CAPTURE(grid.height);
      for (const double dloss : {1.0, kLossScale}) {
        const Forecast given(type, grid);
        const auto expected = given.reference(dloss);
        const auto ours = given.ours(dloss);
        CHECK(std::abs(ours.loss - expected.loss) <= 4.0 * unit_roundoff(at::toOpMathType(type)) * expected.loss);
        CHECK((ours.gradient.scalar_type() == type));
        // What a difference is made of is at most about ten times the largest one.
        const double largest = expected.gradient.abs().max().item<double>();
        CHECK(rounded_once(ours.gradient, expected.gradient, at::full({}, 10.0 * largest, at::kDouble)));
      }
    }
  }
}

TEST_CASE("losses: a loss scale neither overflows nor vanishes on the way, and what does overflow is seen") {
  const Forecast given(at::kHalf);
  // d loss / d prediction is near 1e-2 / 5 here: times 2^14 it is large, and fits.
  const auto plain = given.ours(1.0);
  const auto scaled = given.ours(0x1p14);
  CHECK(scaled.gradient.isfinite().all().item<bool>());
  // fp16's normal numbers are only shifted by a power of two.
  const at::Tensor normal = plain.gradient.abs().ge(0x1p-14);
  CHECK(normal.sum().item<int64_t>() > normal.numel() / 2);
  CHECK(at::equal(scaled.gradient.to(at::kDouble).masked_select(normal),
                  (plain.gradient.to(at::kDouble) * 0x1p14).masked_select(normal)));
  CHECK(given.ours(1e12).gradient.isinf().any().item<bool>());

  // The factor alone is beyond fp32 where prediction and truth are tiny; its product with the difference is not.
  const at::Tensor truth = at::full({1, 1, 4, 4}, 1e-25, at::kFloat);
  const auto tiny = Forecast::differentiate_from(
      at::full({1, 1, 4, 4}, 2e-25, at::kFloat),
      [&](const auto& x) { return model::field_loss(model::FieldLoss::kRelativeL2, x, truth, 1); }, 1e-10);
  CHECK(tiny.loss == doctest::Approx(1.0).epsilon(1e-6));
  CHECK(tiny.gradient.isfinite().all().item<bool>());
  CHECK(tiny.gradient.max().item<double>() == doctest::Approx(1e-10 / (4.0 * 4.0 * 1e-25)).epsilon(1e-6));
}

TEST_CASE("losses: fields and their patches have one loss, and its bits do not depend on the number of threads") {
  const int threads = at::get_num_threads();
  for (const auto type : kFloatTypes) {
    const Forecast given(type, kGrids.back());
    at::set_num_threads(1);
    const auto one = given.ours(kLossScale);
    at::set_num_threads(2);
    const auto two = given.ours(kLossScale);
    at::set_num_threads(threads);
    CHECK(one.loss == two.loss);
    CHECK(at::equal(one.gradient, two.gradient));

    const auto of_fields = Forecast::differentiate_from(
        kernels::unpatchify(given.patches, given.grid),
        [&](const auto& x) { return model::field_loss(model::FieldLoss::kRelativeL2, x, given.fields, 5); },
        kLossScale);
    CHECK(of_fields.loss == doctest::Approx(one.loss).epsilon(1e-6));
    CHECK(relative_error(of_fields.gradient, kernels::unpatchify(one.gradient, given.grid)) <=
          unit_roundoff(type) * 8.0);
  }
}

TEST_CASE("losses: cross-entropy of half-length logits is fp32's, with its gradient rounded once") {
  const at::Tensor labels = at::tensor({5, 0, 2, 2}, at::kLong);
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor logits = (normal_tensor({4, 6}, 6) * 3.0).to(type);
    const auto loss = [&](const auto& x) { return model::cross_entropy_loss(x, labels, 0.1, 9); };
    const auto expected = Forecast::differentiate_from(logits.to(at::kDouble), loss, 1024.0);
    const auto ours = Forecast::differentiate_from(logits, loss, 1024.0);
    CHECK(std::abs(ours.loss - expected.loss) <= kFloatBound * expected.loss);
    CHECK((ours.gradient.scalar_type() == type));
    CHECK(rounded_once(ours.gradient, expected.gradient, at::full({}, 2.0 * 1024.0 / 9.0, at::kDouble)));
    CHECK(Forecast::differentiate_from(logits, loss, 1e8).gradient.isinf().any().item<bool>() == (type == at::kHalf));
    CHECK(model::num_correct(logits, labels, 2) == model::num_correct(logits.to(at::kFloat), labels, 2));
  }
}
