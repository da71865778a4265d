// LayerNorm and residual sums in every type against LibTorch's in fp64, with bounds from the rounding of each type.
#include <doctest/doctest.h>

#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "src/kernels/dropout.h"
#include "src/kernels/layer_norm.h"
#include "tests/support/compare.h"
#include "tests/support/rounding.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

constexpr double kEps = 1e-6;
constexpr int64_t kNormSamples = 2;

struct Extents {
  int64_t rows;  ///< of all samples
  int64_t features;
};

const std::vector<Extents> kExtents = {{2, 5}, {6, 50}, {130, 24}, {260, 384}};

// Rounded to `type`, so that the reference in fp64 has the same input.
at::Tensor random(at::IntArrayRef shape, uint64_t seed, at::ScalarType type) {
  return normal_tensor(shape, seed).to(type);
}

struct Inputs {
  Inputs(Extents extents, at::ScalarType type)
      : x(random({kNormSamples, extents.rows / kNormSamples, extents.features}, 1, type)),
        branch(random(x.sizes(), 2, type)),
        weight(random({extents.features}, 3, type)),
        bias(random({extents.features}, 4, type)),
        dy(random(x.sizes(), 5, type)),
        dresidual(random(x.sizes(), 6, type)) {}

  at::Tensor x;
  at::Tensor branch;
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor dy;
  at::Tensor dresidual;
};

struct Reference {
  at::Tensor y;
  at::Tensor mean;
  at::Tensor rstd;
  at::Tensor dx;
  at::Tensor dweight;
  at::Tensor dbias;
};

Reference reference_of(const Inputs& in, const at::Tensor& x) {
  const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
  const auto [y, mean, rstd] = at::native_layer_norm(wide(x), in.weight.sizes(), wide(in.weight), wide(in.bias), kEps);
  const auto [dx, dweight, dbias] = at::native_layer_norm_backward(wide(in.dy), wide(x), in.weight.sizes(), mean, rstd,
                                                                   wide(in.weight), wide(in.bias), {true, true, true});
  return {y, mean.flatten(), rstd.flatten(), dx, dweight, dbias};
}

// Of the sums behind one element: n terms added 16 at a time at the least, twice, and ten operations; elements are not
// larger than about four times the largest result.
double bound_of_row(const Inputs& in) {
  const double u = unit_roundoff(at::toOpMathType(in.x.scalar_type()));
  return 4.0 * (2.0 * static_cast<double>(in.weight.numel()) / 16.0 + 10.0) * u;
}

// 64 rows and then their sums in a row; sum|x_i| is below sqrt(R) times the largest sum.
double bound_of_columns(const Inputs& in) {
  const auto rows = static_cast<double>(in.x.numel() / in.weight.numel());
  const double u = unit_roundoff(at::toOpMathType(in.x.scalar_type()));
  return std::sqrt(rows) * (std::min(rows, 64.0) + rows / 64.0 + 10.0) * u + bound_of_row(in);
}

// One rounding to the type, if it is a half-length one, beside the error of fp32.
double bound_of_rounded(const at::Tensor& like, double bound) {
  return is_half(like.scalar_type()) ? bound + unit_roundoff(like.scalar_type()) : bound;
}

}  // namespace

TEST_CASE("norm: forward and backward are those of fp64 but for rounding") {
  for (const auto type : kFloatTypes) {
    for (const Extents extents : kExtents) {
      CAPTURE(c10::toString(type));
      CAPTURE(extents.features);
      const Inputs in(extents, type);
      const Reference expected = reference_of(in, in.x);
      const auto [y, mean, rstd] = kernels::layer_norm(in.x, in.weight, in.bias, kEps);
      CHECK((y.scalar_type() == type));
      CHECK((mean.scalar_type() == at::toOpMathType(type)));
      CHECK((rstd.scalar_type() == at::toOpMathType(type)));
      CHECK(relative_error(y, expected.y) <= bound_of_rounded(in.x, bound_of_row(in)));
      CHECK(relative_error(mean, expected.mean) <= bound_of_row(in));
      CHECK(relative_error(rstd, expected.rstd) <= bound_of_row(in));

      for (const bool with_residual : {false, true}) {
        const at::Tensor dresidual = with_residual ? in.dresidual : at::Tensor();
        const at::Tensor dweight = random({extents.features}, 7, at::toOpMathType(type));
        const at::Tensor dbias = random({extents.features}, 8, at::toOpMathType(type));
        const at::Tensor weight_before = dweight.to(at::kDouble).clone();
        const at::Tensor bias_before = dbias.to(at::kDouble).clone();
        const at::Tensor dx =
            kernels::layer_norm_backward(in.dy, {in.x, mean, rstd}, in.weight, dresidual, {dweight, dbias});
        const at::Tensor exact = with_residual ? expected.dx + dresidual.to(at::kDouble) : expected.dx;
        CHECK((dx.scalar_type() == type));
        CHECK(relative_error(dx, exact) <= bound_of_rounded(in.x, bound_of_row(in)));
        // Summed in fp32 whatever the type: what is half is the input alone.
        CHECK(relative_error(dweight, weight_before + expected.dweight) <= bound_of_columns(in));
        CHECK(relative_error(dbias, bias_before + expected.dbias) <= bound_of_columns(in));
      }
    }
  }
}

TEST_CASE("norm: gradients of a half-length type are sums in fp32, rounded once") {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const Inputs in({260, 48}, type);
    const Reference expected = reference_of(in, in.x);
    const auto [y, mean, rstd] = kernels::layer_norm(in.x, in.weight, in.bias, kEps);
    const at::Tensor dweight = random({48}, 7, type);
    const at::Tensor dbias = random({48}, 8, type);
    const at::Tensor exact_weight = dweight.to(at::kDouble) + expected.dweight;
    const at::Tensor exact_bias = dbias.to(at::kDouble) + expected.dbias;
    kernels::layer_norm_backward(in.dy, {in.x, mean, rstd}, in.weight, at::Tensor(), {dweight, dbias});
    CHECK((dweight.scalar_type() == type));
    CHECK(relative_error(dweight, exact_weight) <= bound_of_rounded(dweight, bound_of_columns(in)));
    CHECK(relative_error(dbias, exact_bias) <= bound_of_rounded(dbias, bound_of_columns(in)));
  }
}

TEST_CASE("norm: the gradient of a bias that was added to x is the sum of the rows of dx as rounded") {
  for (const auto type : kFloatTypes) {
    for (const Extents extents : kExtents) {
      CAPTURE(c10::toString(type));
      CAPTURE(extents.features);
      const Inputs in(extents, type);
      const auto [y, mean, rstd] = kernels::layer_norm(in.x, in.weight, in.bias, kEps);
      const at::Tensor gradients = at::ones({5, extents.features}, at::toOpMathType(type));
      const kernels::NormInput input{in.x, mean, rstd};
      const at::Tensor alone =
          kernels::layer_norm_backward(in.dy, input, in.weight, in.dresidual, {gradients[0], gradients[1]});
      const at::Tensor dx = kernels::layer_norm_backward(in.dy, input, in.weight, in.dresidual,
                                                         {gradients[2], gradients[3], gradients[4]});
      CHECK(at::equal(dx, alone));
      CHECK(at::equal(gradients[0], gradients[2]));
      CHECK(at::equal(gradients[1], gradients[3]));
      const at::Tensor rows = dx.view({extents.rows, extents.features}).to(at::kDouble);
      CHECK(relative_error(gradients[4], 1.0 + rows.sum(0)) <= bound_of_rounded(gradients[4], bound_of_columns(in)));
    }
  }
}

TEST_CASE("norm: a residual sum is rounded once, and what is normed is the rounded sum") {
  for (const auto type : kFloatTypes) {
    for (const Extents extents : kExtents) {
      CAPTURE(c10::toString(type));
      CAPTURE(extents.features);
      for (const bool scaled : {false, true}) {
        const Inputs in(extents, type);
        const auto options = at::TensorOptions(at::toOpMathType(type));
        const at::Tensor scales = scaled ? at::zeros({kNormSamples}, options) : at::Tensor();
        at::Tensor factors = at::ones({kNormSamples, 1, 1}, at::kDouble);
        if (scaled) {
          scales[1] = 1.0 / 0.7;  // sample 0 is dropped
          factors = scales.to(at::kDouble).view({kNormSamples, 1, 1});
        }
        const at::Tensor added = in.branch.to(at::kDouble) * factors;
        const at::Tensor exact = in.x.to(at::kDouble) + added;
        const at::Tensor plain = kernels::residual_sum(in.x, in.branch.clone(), scales);
        const auto [sum, normed] =
            kernels::residual_layer_norm(in.x, in.branch.clone(), scales, in.weight, in.bias, kEps);
        CHECK(rounded_once(plain, exact, in.x.to(at::kDouble).abs() + added.abs()));
        CHECK(at::equal(sum, plain));
        const Reference expected = reference_of(in, sum);
        CHECK(relative_error(normed.y, expected.y) <= bound_of_rounded(in.x, bound_of_row(in)));
        CHECK(relative_error(normed.mean, expected.mean) <= bound_of_row(in));
        CHECK(relative_error(normed.rstd, expected.rstd) <= bound_of_row(in));
        if (scaled) {
          CHECK(at::equal(sum[0], in.x[0]));
          const at::Tensor dbranch = kernels::branch_gradient(in.dy, scales);
          const at::Tensor product = in.dy.to(at::kDouble) * factors;
          CHECK(rounded_once(dbranch, product, product.abs()));
        } else {
          CHECK(kernels::branch_gradient(in.dy, scales).is_same(in.dy));
        }
      }
    }
  }
}

TEST_CASE("norm: the bits do not depend on the number of threads") {
  const int threads = at::get_num_threads();
  for (const auto type : kFloatTypes) {
    const Inputs in({2000, 72}, type);
    std::vector<std::vector<at::Tensor>> results;
    for (const int count : {1, 2, 3}) {
      at::set_num_threads(count);
      const at::Tensor dweight = at::zeros({72}, at::toOpMathType(type));
      const at::Tensor dbias = at::zeros({72}, at::toOpMathType(type));
      const auto [sum, normed] =
          kernels::residual_layer_norm(in.x, in.branch.clone(), at::Tensor(), in.weight, in.bias, kEps);
      const at::Tensor dx = kernels::layer_norm_backward(in.dy, {sum, normed.mean, normed.rstd}, in.weight,
                                                         in.dresidual, {dweight, dbias});
      results.push_back({sum, normed.y, normed.mean, normed.rstd, dx, dweight, dbias});
    }
    at::set_num_threads(threads);
    for (size_t i = 0; i < results[0].size(); ++i) {
      CHECK(at::equal(results[0][i], results[1][i]));
      CHECK(at::equal(results[0][i], results[2][i]));
    }
  }
}

TEST_CASE("norm: no rows, and what is not finite stays visible in its row") {
  for (const auto type : kFloatTypes) {
    const Inputs none({0, 8}, type);
    const at::Tensor dweight = at::zeros({8}, at::kFloat);
    const at::Tensor dbias = at::zeros({8}, at::kFloat);
    const auto empty = kernels::residual_layer_norm(none.x, none.branch, at::Tensor(), none.weight, none.bias, kEps);
    kernels::layer_norm_backward(none.dy, {none.x, empty.normed.mean, empty.normed.rstd}, none.weight, none.dresidual,
                                 {dweight, dbias});
    CHECK(empty.normed.y.numel() == 0);
    CHECK(dweight.abs().max().item<float>() == 0.0f);

    const Inputs in({6, 40}, type);
    in.x[1][0][3] = std::numeric_limits<double>::infinity();
    const auto [y, mean, rstd] = kernels::layer_norm(in.x, in.weight, in.bias, kEps);
    CHECK(y[1][0].isnan().any().item<bool>());
    CHECK(y[0].isfinite().all().item<bool>());
  }
}
