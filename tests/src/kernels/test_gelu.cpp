// GELU with erf and with tanh, their gradients, and the layers that fuse them, against ATen's in fp64.
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>

#include <array>
#include <limits>

#include "parallel/tensor/linear.h"
#include "src/kernels/gelu.h"
#include "src/kernels/gemm/epilogue.h"
#include "tests/support/compare.h"
#include "tests/support/group_of_one.h"
#include "tests/support/linear_layer.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

double largest(const at::Tensor& tensor) {
  return tensor.abs().max().item<double>();
}

// Half the largest relative distance of neighbouring numbers.
double rounding_of(at::ScalarType type) {
  switch (type) {
    case at::kBFloat16:
      return 0x1p-8;
    case at::kHalf:
      return 0x1p-11;
    default:
      return 0.0;
  }
}

using kernels::GeluKind;

constexpr std::array kKinds = {GeluKind::kErf, GeluKind::kTanh};

const char* name_of(GeluKind kind) {
  return kind == GeluKind::kErf ? "none" : "tanh";  // ATen's "approximate"
}

// Numbers of this type over all of GELU's bend, and some far beyond.
at::Tensor sample_points(at::ScalarType type) {
  const at::Tensor near = at::linspace(-9.0, 9.0, 100003, at::kDouble);
  const at::Tensor far = at::linspace(-3e4, 3e4, 1001, at::kDouble);
  return at::cat({near, far}).to(type);
}

void fill(tensor::ParameterBuffer& buffer) {
  const at::Tensor weight = buffer.parameter("layer.weight").value;
  const at::Tensor bias = buffer.parameter("layer.bias").value;
  weight.copy_(normal_tensor(weight.sizes(), 1) * 0.1);
  bias.copy_(normal_tensor(bias.sizes(), 2));
  buffer.bump_version();
}

struct LayerResult {
  at::Tensor y, dx, weight_gradient, bias_gradient;
};

LayerResult run_layer(const at::Tensor& x, const at::Tensor& dy, at::ScalarType type, GeluKind kind,
                      tensor::Keep keep) {
  auto buffer = make_linear_layer(x.size(-1), dy.size(-1), type);
  fill(buffer);
  tensor::ColumnParallelLinear layer(buffer, "layer", tensor::Terms::kWeightAndBias, group_of_one());
  const at::Tensor input = x.to(type, false, true).requires_grad_();
  const auto context = test_context(2, Mode::kTraining);
  const at::Tensor y = layer.forward_gelu(input, kind, context, keep);
  torch::autograd::backward({y}, {dy.to(type)});
  return {y.detach(), input.grad(), buffer.parameter("layer.weight").gradient.clone(),
          buffer.parameter("layer.bias").gradient.clone()};
}

}  // namespace

TEST_CASE("gelu: values and gradients are ATen's in fp64") {
  // fp32: Phi is off by 2e-7, its derivative with z phi by 5e-7, and products are rounded.
  for (const GeluKind kind : kKinds) {
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
      CAPTURE(std::string(name_of(kind)));
      CAPTURE(type);
      const at::Tensor z = sample_points(type);
      const at::Tensor exact_z = z.to(at::kDouble);
      const at::Tensor scale = exact_z.abs().clamp_min(1.0);
      const double value_bound = (type == at::kDouble ? 1e-15 : 2.5e-7) + rounding_of(type);
      const at::Tensor difference = kernels::gelu(z, kind).to(at::kDouble) - at::gelu(exact_z, name_of(kind));
      CHECK(largest(difference / scale) <= value_bound);

      // Half-length results below the smallest normal number are rounded more coarsely: 1e-7 covers them.
      // ATen takes tanh's square from 1.
      const double double_bound = kind == GeluKind::kErf ? 1e-15 : 1e-14;
      const double gradient_bound = (type == at::kDouble ? double_bound : 6e-7) + 1.2 * rounding_of(type);
      const at::Tensor column = z.view({-1, 1});
      const at::Tensor dz = kernels::gelu_backward(at::ones_like(column), column, kind, {});
      const at::Tensor exact_dz = at::gelu_backward(at::ones_like(exact_z), exact_z, name_of(kind));
      CHECK(largest(dz.view(-1).to(at::kDouble) - exact_dz) <= gradient_bound);
    }
  }
}

TEST_CASE("gelu: the gradient is that of central differences, and erf and tanh are two functions") {
  constexpr double kStep = 1e-5;
  const at::Tensor z = at::linspace(-7.0, 7.0, 1001, at::kDouble).view({-1, 1});
  for (const GeluKind kind : kKinds) {
    const at::Tensor slope = (kernels::gelu(z + kStep, kind) - kernels::gelu(z - kStep, kind)) / (2.0 * kStep);
    CHECK(largest(kernels::gelu_backward(at::ones_like(z), z, kind, {}) - slope) <= 1e-9);
  }
  const double apart = largest(kernels::gelu(z, GeluKind::kErf) - kernels::gelu(z, GeluKind::kTanh));
  CHECK(apart > 4e-4);
  CHECK(apart < 5e-4);
  const at::Tensor phi = kernels::gelu(z, GeluKind::kErf) / z, stand_in = kernels::gelu(z, GeluKind::kTanh) / z;
  CHECK(largest((phi - stand_in).masked_fill(z == 0.0, 0.0)) < 2e-4);  // as GeluKind has it
}

TEST_CASE("gelu: erf in fp32 is within 1e-6, and what is not a number stays so") {
  const at::Tensor z = at::linspace(-8.0, 8.0, 200003, at::kDouble).to(at::kFloat);
  const at::Tensor exact_z = z.to(at::kDouble);
  // erf(z / sqrt 2) = 2 gelu(z) / z - 1; away from 0, where dividing by z would measure the rounding of z Phi(z).
  const at::Tensor erf = kernels::gelu(z, GeluKind::kErf).to(at::kDouble) / exact_z * 2.0 - 1.0;
  CHECK(largest((erf - (exact_z * M_SQRT1_2).erf()).masked_fill(exact_z == 0.0, 0.0)) <= 1e-6);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const GeluKind kind : kKinds) {
      const at::Tensor nan = at::full({3, 50}, std::numeric_limits<double>::quiet_NaN(), type);
      CHECK(kernels::gelu(nan, kind).isnan().all().item<bool>());
      CHECK(kernels::gelu_backward(at::ones_like(nan), nan, kind, {}).isnan().all().item<bool>());
      const at::Tensor infinite = at::full({2, 40}, std::numeric_limits<double>::infinity(), type);
      CHECK(kernels::gelu(infinite, kind).equal(infinite));
    }
  }
}

TEST_CASE("gelu: the bias gradient is the sum over the rows, in fp32") {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto& [rows, columns] : {std::pair{1, 3}, {64, 1}, {331, 1029}}) {
      const at::Tensor z = normal_tensor({rows, columns}, 1).to(type);
      const at::Tensor dy = normal_tensor({rows, columns}, 2).to(type);
      for (const GeluKind kind : kKinds) {
        const at::Tensor exact = at::gelu_backward(dy.to(at::kDouble), z.to(at::kDouble), name_of(kind)).sum(0) + 0.25;
        const at::Tensor bias_gradient = at::full({columns}, 0.25, at::kFloat);
        kernels::gelu_backward(dy, z, kind, bias_gradient);
        const double slope_error = type == at::kBFloat16 ? 2.1e-4 : 0.0;
        CHECK(relative_error(bias_gradient, exact) <= 2e-6 + slope_error);
      }
      const at::Tensor sums = at::full({columns}, 0.25, at::kFloat);
      kernels::add_column_sums(sums, dy);
      CHECK(relative_error(sums, dy.to(at::kDouble).sum(0) + 0.25) <= 1e-6);
    }
  }
}

TEST_CASE("gelu: the fused layer is gelu(x W^T + b), forward and backward, and keeps its input only if told to") {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto& [rows, inputs, outputs] : {std::array{3, 7, 5}, {170, 97, 131}}) {
      for (const GeluKind kind : kKinds) {
        CAPTURE(type);
        CAPTURE(rows);
        CAPTURE(std::string(name_of(kind)));
        const at::Tensor x = normal_tensor({2, rows, inputs}, 3).to(type).to(at::kDouble);
        const at::Tensor dy = normal_tensor({2, rows, outputs}, 4).to(type).to(at::kDouble);
        auto buffer = make_linear_layer(inputs, outputs, type);
        fill(buffer);
        const at::Tensor weight = buffer.parameter("layer.weight").value.to(at::kDouble);
        const at::Tensor flat = x.view({-1, inputs});
        const at::Tensor z = at::mm(flat, weight.t()) + buffer.parameter("layer.bias").value.to(at::kDouble);
        const at::Tensor dz = at::gelu_backward(dy.view({-1, outputs}), z, name_of(kind));

        const LayerResult kept = run_layer(x, dy, type, kind, tensor::Keep::kPreActivation);
        // Rounding: of y once; of the kept z, by which GELU's slope changes (at most 0.8 a unit of z), and of dz.
        const double sums = type == at::kDouble ? 1e-13 : 3e-6;
        const double bound = sums + 3.0 * rounding_of(type);
        CHECK(relative_error(kept.y, at::gelu(z, name_of(kind)).view(dy.sizes())) <= sums + rounding_of(type));
        CHECK(relative_error(kept.dx, at::mm(dz, weight).view(x.sizes())) <= bound);
        CHECK(relative_error(kept.weight_gradient, at::mm(dz.t(), flat)) <= bound);
        CHECK(relative_error(kept.bias_gradient, dz.sum(0)) <= bound);

        const LayerResult again = run_layer(x, dy, type, kind, tensor::Keep::kInputOnly);
        CHECK(again.y.equal(kept.y));
        CHECK(again.dx.equal(kept.dx));
        CHECK(again.weight_gradient.equal(kept.weight_gradient));
        CHECK(again.bias_gradient.equal(kept.bias_gradient));
      }
    }
  }
}
