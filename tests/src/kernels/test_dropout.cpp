// Dropout and drop-path: the masks are those of single draws, of the right frequency, and the model's are the
// reference's.
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>

#include "src/kernels/dropout.h"
#include "tests/support/compare.h"
#include "tests/support/group_of_one.h"
#include "tests/support/rounding.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using kernels::DropKey;
using kernels::DropSite;

namespace {

constexpr int64_t kDroppedSamples = 3;

model::VitOptions with_dropout(model::VitOptions options) {
  options.dropout = 0.2;
  options.drop_path = 0.5;
  return options;
}

}  // namespace

TEST_CASE("dropout: a slice of the features has the slice of the mask, whatever its alignment") {
  const auto context = test_context(kDroppedSamples, Mode::kTraining);
  const DropKey key{0.3, 4, DropSite::kHidden};
  constexpr int64_t kTokens = 5;
  constexpr int64_t kFeatures = 23;
  const at::Tensor x = normal_tensor({kDroppedSamples, kTokens, kFeatures}, 1);
  const at::Tensor whole = kernels::dropout(x, {0, kFeatures}, kFeatures, key, context);
  for (const Range part : {Range{0, 4}, Range{3, 11}, Range{7, 8}, Range{21, 23}, Range{6, 6}}) {
    const at::Tensor slice =
        kernels::dropout(x.narrow(2, part.begin, part.size()).contiguous(), part, kFeatures, key, context);
    CHECK(relative_error(slice, whole.narrow(2, part.begin, part.size())) == 0.0);
  }
}

TEST_CASE("dropout: a sample has its own mask wherever it is in the batch") {
  auto context = test_context(kDroppedSamples, Mode::kTraining);
  const DropKey key{0.5, 1, DropSite::kOutput};
  const at::Tensor x = at::ones({kDroppedSamples, 4, 6}, at::kDouble);
  const at::Tensor all = kernels::dropout(x, {0, 6}, 6, key, context);
  context.samples = {context.samples[2]};
  const at::Tensor last = kernels::dropout(x.narrow(0, 0, 1), {0, 6}, 6, key, context);
  CHECK(relative_error(last, all.narrow(0, 2, 1)) == 0.0);
}

TEST_CASE("dropout: keeps the given fraction, scaled, with other masks for other keys") {
  auto context = test_context(2, Mode::kTraining);
  const at::Tensor x = at::ones({2, 200, 500}, at::kFloat);
  const at::Tensor y = kernels::dropout(x, {0, 500}, 500, {0.1, 1, DropSite::kOutput}, context);
  const double kept = y.ne(0).sum().item<double>() / static_cast<double>(y.numel());
  CHECK(std::abs(kept - 0.9) < 4.0 * std::sqrt(0.1 * 0.9 / 200000.0));  // four standard deviations
  CHECK(y.max().item<float>() == doctest::Approx(1.0 / 0.9));

  const at::Tensor other_site = kernels::dropout(x, {0, 500}, 500, {0.1, 1, DropSite::kHidden}, context);
  const at::Tensor other_unit = kernels::dropout(x, {0, 500}, 500, {0.1, 2, DropSite::kOutput}, context);
  context.step += 1;
  const at::Tensor other_step = kernels::dropout(x, {0, 500}, 500, {0.1, 1, DropSite::kOutput}, context);
  for (const auto& other : {other_site, other_unit, other_step}) {
    const double differ = other.ne(y).sum().item<double>() / static_cast<double>(y.numel());
    CHECK(std::abs(differ - 2 * 0.1 * 0.9) < 0.005);  // as often as independent masks do
  }
}

TEST_CASE("dropout: nothing happens in evaluation or at rate zero") {
  const at::Tensor x = at::ones({1, 2, 3}, at::kDouble);
  const auto training = test_context(1, Mode::kTraining);
  const auto evaluation = test_context(1, Mode::kEvaluation);
  CHECK(kernels::dropout(x, {0, 3}, 3, {0.5, 1, DropSite::kOutput}, evaluation).is_same(x));
  CHECK(kernels::dropout(x, {0, 3}, 3, {0.0, 1, DropSite::kOutput}, training).is_same(x));
}

TEST_CASE("dropout: drop-path drops whole branches of samples and keeps the mean") {
  constexpr int64_t kMany = 4000;
  const auto context = test_context(kMany, Mode::kTraining);
  const at::Tensor residual = at::ones({kMany, 1, 2}, at::kDouble);
  const at::Tensor sum =
      kernels::add_residual(residual, at::ones({kMany, 1, 2}, at::kDouble), {0.25, 3, DropSite::kMlpPath}, context);
  const at::Tensor dropped = sum.eq(1.0);
  CHECK(dropped.select(2, 0).eq(dropped.select(2, 1)).all().item<bool>());
  const double fraction = dropped.select(2, 0).sum().item<double>() / kMany;
  CHECK(std::abs(fraction - 0.25) < 4.0 * std::sqrt(0.25 * 0.75 / kMany));
  CHECK(sum.max().item<double>() == doctest::Approx(1.0 + 1.0 / 0.75));
}

// 1 / (1 - rate) in bf16 would be off by up to 1/256, and the product and the sum would be rounded each.
TEST_CASE("dropout: in every type the scale is exact and the result rounded once") {
  const auto context = test_context(kDroppedSamples, Mode::kTraining);
  constexpr double kScale = 1.0 / 0.7;
  for (const auto type : kFloatTypes) {
    CAPTURE(c10::toString(type));
    const at::Tensor x = normal_tensor({kDroppedSamples, 7, 33}, 1).to(type).requires_grad_();
    const at::Tensor y = kernels::dropout(x, {0, 33}, 33, {0.3, 1, DropSite::kOutput}, context);
    const at::Tensor dy = normal_tensor(x.sizes(), 2).to(type);
    torch::autograd::backward({y}, {dy});
    const at::Tensor kept = y.detach().ne(0);
    const at::Tensor exact = x.detach().to(at::kDouble) * kScale * kept;
    const at::Tensor exact_gradient = dy.to(at::kDouble) * kScale * kept;
    CHECK((y.scalar_type() == type));
    CHECK(rounded_once(y.detach(), exact, exact.abs()));
    CHECK(rounded_once(x.grad(), exact_gradient, exact_gradient.abs()));

    const at::Tensor residual = normal_tensor({kDroppedSamples, 7, 33}, 3).to(type);
    const at::Tensor branch = normal_tensor({kDroppedSamples, 7, 33}, 4).to(type);
    const DropKey path{0.3, 3, DropSite::kMlpPath};
    const at::Tensor scales = kernels::path_scales(branch, path, context).to(at::kDouble).view({kDroppedSamples, 1, 1});
    for (const double scale : {scales.max().item<double>(), scales.min().item<double>()}) {
      const bool known = scale == 0.0 || std::abs(scale - kScale) <= kScale * 0x1p-24;
      CHECK(known);
    }
    const at::Tensor product = branch.to(at::kDouble) * scales;
    const at::Tensor sum = kernels::add_residual(residual, branch.clone(), path, context);
    CHECK(rounded_once(sum, residual.to(at::kDouble) + product, residual.to(at::kDouble).abs() + product.abs()));
  }
}

TEST_CASE("dropout: the bits do not depend on the number of threads") {
  const int threads = at::get_num_threads();
  const auto context = test_context(kDroppedSamples, Mode::kTraining);
  for (const auto type : kFloatTypes) {
    const at::Tensor x = normal_tensor({kDroppedSamples, 200, 33}, 1).to(type);
    at::set_num_threads(1);
    const at::Tensor one = kernels::dropout(x, {0, 33}, 33, {0.3, 1, DropSite::kOutput}, context);
    at::set_num_threads(2);
    const at::Tensor two = kernels::dropout(x, {0, 33}, 33, {0.3, 1, DropSite::kOutput}, context);
    at::set_num_threads(threads);
    CHECK(at::equal(one, two));
  }
}

TEST_CASE("dropout: the model with all kinds of dropout is the reference with masks draw by draw") {
  for (const auto& plain : {small_forecaster(), small_classifier(model::Pooling::kToken)}) {
    const auto options = with_dropout(plain);
    const auto parameters = test_parameters(options);
    const at::Tensor images = test_images(options, kDroppedSamples);
    const at::Tensor gradient = normal_tensor(output_shape(options, kDroppedSamples), 12);
    const auto context = test_context(kDroppedSamples, Mode::kTraining);
    const Outcome ours = run_ours(options, parameters, images, gradient, context, at::kDouble, group_of_one());
    const Outcome reference = run_reference(options, parameters, images, gradient, context, at::kDouble);
    const Outcome without = run_reference(plain, parameters, images, gradient, context, at::kDouble);
    CHECK(relative_error(ours.output, reference.output) <= 1e-13);
    CHECK(relative_error(without.output, reference.output) > 0.01);
    const WorstError worst = worst_gradient_error(ours.gradients, reference.gradients);
    CAPTURE(worst.name);
    CHECK(worst.error <= 1e-13);
  }
}
