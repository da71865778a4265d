// The losses of fields with weights, and the mean absolute error, against plain ATen under LibTorch's autograd.
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>

#include <string>
#include <vector>

#include "data/datasets/coordinates.h"
#include "model/losses.h"
#include "tests/support/compare.h"
#include "tests/support/rounding.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using model::FieldLoss;
using model::FieldWeights;

namespace {

constexpr double kWeightedBound = 1e-12;
constexpr int64_t kGlobalBatch = 5;
constexpr FieldLoss kFieldLosses[] = {FieldLoss::kRelativeL2, FieldLoss::kMeanSquare, FieldLoss::kMeanAbsolute};

struct Differentiated {
  double loss;
  at::Tensor gradient;
};

Differentiated derivative(const at::Tensor& x, const auto& loss, double dloss = 1.0) {
  const at::Tensor leaf = x.detach().clone().requires_grad_();
  const at::Tensor value = loss(leaf);
  torch::autograd::backward({value}, {at::full({}, dloss, value.options())});
  return {value.template item<double>(), leaf.grad()};
}

// Mean over the values, or norms, of the weighted errors; weights as fields of their own.
at::Tensor plain_loss(FieldLoss loss, const at::Tensor& prediction, const at::Tensor& target, const at::Tensor& rows,
                      const at::Tensor& channels) {
  const at::Tensor weights = (channels.view({-1, 1, 1}) * rows.view({1, -1, 1})).expand(target.sizes().slice(1));
  const at::Tensor error = prediction - target;
  const auto sum = [](const at::Tensor& x) { return x.flatten(1).sum(1); };
  const auto num_values = static_cast<double>(target[0].numel());
  switch (loss) {
    case FieldLoss::kRelativeL2:
      return (sum(weights * error * error).sqrt() / sum(weights * target * target).sqrt()).sum() / double{kGlobalBatch};
    case FieldLoss::kMeanSquare:
      return sum(weights * error * error).sum() / num_values / double{kGlobalBatch};
    case FieldLoss::kMeanAbsolute:
      return sum(weights * error.abs()).sum() / num_values / double{kGlobalBatch};
  }
  return {};
}

// Whole patches, such as are cut in the south, in the east, and in both, and a line that is no whole vector.
const std::vector<kernels::PatchGrid> kWeightedGrids = {
    {12, 20, 4, 4, 6}, {11, 20, 4, 5, 3}, {12, 19, 3, 4, 5}, {10, 17, 4, 7, 1}, {5, 7, 2, 3, 3}};

// No two rows, and no two channels, count alike.
at::Tensor row_weights(const kernels::PatchGrid& grid) {
  std::vector<double> latitudes;
  for (int64_t row = 0; row < grid.height; ++row) {
    latitudes.push_back(70.0 - 5.0 * static_cast<double>(row));
  }
  return at::tensor(data::latitude_weights({latitudes, {}}, grid.height), at::kDouble);
}

at::Tensor channel_weights(const kernels::PatchGrid& grid) {
  std::vector<double> weights;
  for (int64_t c = 0; c < grid.channels; ++c) {
    weights.push_back(0.25 + 0.5 * static_cast<double>(c * c));
  }
  return at::tensor(weights, at::kDouble);
}

struct Weighted {
  Weighted(const kernels::PatchGrid& given, at::ScalarType type)
      : grid(given),
        patches(normal_tensor({3, grid.num_patches(), grid.num_features()}, 1).to(type)),
        fields(normal_tensor({3, grid.channels, grid.height, grid.width}, 2).to(at::toOpMathType(type))) {}

  Differentiated expected(FieldLoss loss, const FieldWeights& weights, double dloss = 1.0) const {
    const at::Tensor rows = weights.rows.defined() ? weights.rows : at::ones({grid.height}, at::kDouble);
    const at::Tensor channels = weights.channels.defined() ? weights.channels : at::ones({grid.channels}, at::kDouble);
    const auto plain = [&](const at::Tensor& x) {
      return plain_loss(loss, kernels::unpatchify(x, grid), fields.to(at::kDouble), rows, channels);
    };
    return derivative(patches.to(at::kDouble), plain, dloss);
  }

  Differentiated ours(FieldLoss loss, const FieldWeights& weights, double dloss = 1.0) const {
    const auto of_patches = [&](const at::Tensor& x) {
      return model::field_loss(loss, x, fields, grid, kGlobalBatch, weights);
    };
    return derivative(patches, of_patches, dloss);
  }

  std::vector<FieldWeights> all_weights() const {
    return {{}, {row_weights(grid), {}}, {{}, channel_weights(grid)}, {row_weights(grid), channel_weights(grid)}};
  }

  kernels::PatchGrid grid;
  at::Tensor patches;
  at::Tensor fields;
};

}  // namespace

TEST_CASE("weighted losses: value and gradient are the formulas', of whole and cut patches, in fp64") {
  for (const FieldLoss loss : kFieldLosses) {
    for (const kernels::PatchGrid& grid : kWeightedGrids) {
      const Weighted given(grid, at::kDouble);
      for (const FieldWeights& weights : given.all_weights()) {
        CAPTURE(static_cast<int>(loss));
        CAPTURE(grid.height);
        CAPTURE(weights.rows.defined());
        CAPTURE(weights.channels.defined());
        const auto expected = given.expected(loss, weights);
        const auto ours = given.ours(loss, weights);
        CHECK(std::abs(ours.loss - expected.loss) <= kWeightedBound * expected.loss);
        CHECK(relative_error(ours.gradient, expected.gradient) <= kWeightedBound);

        const at::Tensor fields = kernels::unpatchify(given.patches, grid);
        const auto of_fields = derivative(fields, [&](const at::Tensor& x) {
          return model::field_loss(loss, x, given.fields, kGlobalBatch, weights);
        });
        CHECK(std::abs(of_fields.loss - expected.loss) <= kWeightedBound * expected.loss);
        CHECK(relative_error(of_fields.gradient, kernels::unpatchify(expected.gradient, grid)) <= kWeightedBound);
      }
    }
  }
}

TEST_CASE("weighted losses: of every type the gradient is rounded once, and the bits do not depend on the threads") {
  constexpr double kLossScale = 4096.0;
  const int threads = at::get_num_threads();
  for (const auto type : kFloatTypes) {
    for (const FieldLoss loss : kFieldLosses) {
      for (const kernels::PatchGrid& grid : kWeightedGrids) {
        CAPTURE(c10::toString(type));
        CAPTURE(static_cast<int>(loss));
        CAPTURE(grid.height);
        const Weighted given(grid, type);
        const FieldWeights weights{row_weights(grid), channel_weights(grid)};
        const auto expected = given.expected(loss, weights, kLossScale);
        const auto ours = given.ours(loss, weights, kLossScale);
        CHECK(std::abs(ours.loss - expected.loss) <= 4.0 * unit_roundoff(at::toOpMathType(type)) * expected.loss);
        CHECK((ours.gradient.scalar_type() == type));
        const double largest = expected.gradient.abs().max().item<double>();
        CHECK(rounded_once(ours.gradient, expected.gradient, at::full({}, 10.0 * largest, at::kDouble)));
        at::set_num_threads(threads == 1 ? 2 : 1);
        const auto again = given.ours(loss, weights, kLossScale);
        at::set_num_threads(threads);
        CHECK(again.loss == ours.loss);
        CHECK(at::equal(again.gradient, ours.gradient));
      }
    }
  }
}

TEST_CASE("weighted losses: the gradient is the slope of the loss") {
  constexpr double kStep = 1e-5;
  const Weighted given({5, 7, 2, 3, 3}, at::kDouble);
  const FieldWeights weights{row_weights(given.grid), channel_weights(given.grid)};
  const at::Tensor direction = normal_tensor(given.patches.sizes().vec(), 7);
  for (const FieldLoss loss : kFieldLosses) {
    const auto at_distance = [&](double distance) {
      Weighted moved = given;
      moved.patches = given.patches + distance * direction;
      return moved.ours(loss, weights).loss;
    };
    const double slope = (at_distance(kStep) - at_distance(-kStep)) / (2.0 * kStep);
    const double expected = (given.ours(loss, weights).gradient * direction).sum().item<double>();
    CHECK(slope == doctest::Approx(expected).epsilon(1e-6));
  }
}

TEST_CASE("weighted losses: where a forecast is right nothing pulls, and a channel that does not count is not seen") {
  for (const auto type : kFloatTypes) {
    for (const FieldLoss loss : kFieldLosses) {
      Weighted given({10, 17, 4, 7, 2}, type);
      given.fields = normal_tensor({3, 2, 10, 17}, 2).to(type).to(at::toOpMathType(type));
      const at::Tensor right = given.fields.to(type);
      const auto of = [&](const at::Tensor& prediction, const FieldWeights& weights) {
        return derivative(prediction, [&](const at::Tensor& x) {
          return model::field_loss(loss, x, given.fields, kGlobalBatch, weights);
        });
      };
      const auto exact = of(right, {row_weights(given.grid), channel_weights(given.grid)});
      CHECK(exact.loss == 0.0);
      CHECK(exact.gradient.abs().max().item<double>() == 0.0);

      at::Tensor wrong = right.clone();
      wrong.select(1, 1) += 1.0;
      const auto unseen = of(wrong, {{}, at::tensor({2.0, 0.0}, at::kDouble)});
      CHECK(unseen.loss == 0.0);
      CHECK(unseen.gradient.abs().max().item<double>() == 0.0);
      const auto seen = of(wrong, {{}, at::tensor({0.0, 2.0}, at::kDouble)});
      CHECK(seen.loss > 0.0);
      CHECK(seen.gradient.select(1, 0).abs().max().item<double>() == 0.0);
      CHECK(seen.gradient.select(1, 1).min().item<double>() > 0.0);
    }
  }
}

TEST_CASE("weighted losses: rows from the north and channels in their order, not the other way round") {
  const Weighted given(kWeightedGrids.front(), at::kDouble);
  const at::Tensor rows = row_weights(given.grid), channels = channel_weights(given.grid);
  for (const FieldLoss loss : kFieldLosses) {
    const double expected = given.expected(loss, {rows, channels}).loss;
    for (const FieldWeights& turned : {FieldWeights{rows.flip(0), channels}, FieldWeights{rows, channels.roll(1)}}) {
      CHECK(std::abs(given.ours(loss, turned).loss - expected) > 1e-6 * expected);
    }
  }
}

TEST_CASE("weighted losses: the mean absolute error of large and undefined errors") {
  const double infinite = std::numeric_limits<double>::infinity();
  const at::Tensor target = at::ones({1, 1, 1, 4}, at::kDouble);
  const at::Tensor prediction = at::tensor({infinite, -infinite, std::nan(""), 3.0}, at::kDouble).view({1, 1, 1, 4});
  const auto ours = derivative(
      prediction, [&](const at::Tensor& x) { return model::field_loss(FieldLoss::kMeanAbsolute, x, target, 1); });
  CHECK(std::isnan(ours.loss));
  const auto* const gradient = ours.gradient.const_data_ptr<double>();
  CHECK(gradient[0] == 0.25);
  CHECK(gradient[1] == -0.25);
  CHECK(std::isnan(gradient[2]));
  CHECK(gradient[3] == 0.25);
}
