// Products of linear layers, GELU and sums of columns on a GPU, against LibTorch in fp64.
#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/base/text.h"
#include "src/kernels/gelu.h"
#include "src/kernels/gemm/cublaslt.h"
#include "src/kernels/gemm/device_products.h"
#include "src/kernels/gemm/epilogue.h"
#include "tests/support/compare.h"
#include "tests/support/gpu/kernel_scope.h"
#include "tests/support/gpu/own_gpu.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using kernels::Fp32Products;
using kernels::GeluKind;
using kernels::ProductExtra;
using kernels::ProductKind;
using kernels::SumOrder;

namespace {

c10::Device gpu() {
  static const c10::Device device = own_gpu();
  return device;
}

struct Type {
  at::ScalarType values;
  at::ScalarType gradients;
  double rounding;           ///< bound of a result's error, rounded once
  double gradient_rounding;  ///< the same in the gradients' type: of sums of up to some hundreds of terms
};

std::vector<Type> types() {
  std::vector<Type> result = {{at::kDouble, at::kDouble, 1e-14, 1e-14},
                              {at::kFloat, at::kFloat, 5e-6, 5e-6},
                              {at::kHalf, at::kFloat, 6e-4, 5e-6},
                              {at::kHalf, at::kHalf, 6e-4, 2e-3}};
  if (kernels::device_traits(gpu()).capability >= 80) {
    result.push_back({at::kBFloat16, at::kFloat, 5e-3, 5e-6});
    result.push_back({at::kBFloat16, at::kBFloat16, 5e-3, 2e-2});
  }
  return result;
}

at::Tensor draws(at::IntArrayRef shape, at::ScalarType type) {
  return at::randn(shape, at::TensorOptions(at::kDouble).device(gpu())).to(type);
}

at::Tensor in_double(const at::Tensor& x) {
  return x.to(at::kDouble);
}

struct Shape {
  int64_t rows, outputs, inputs;
};

// Few results of many terms: algorithms that cut the inner dimension are the fastest, and yet all is rounded once.
constexpr Shape kLongSums = {48, 64, 8192};
// One of a ViT, one that no tensor core likes, one of a single row.
const std::vector<Shape> kShapes = {{394, 256, 192}, {37, 23, 41}, {1, 8, 16}, kLongSums};

// Of a sum of `terms` products: tensor cores cut off what they add up in fp32, so that its error grows with the terms
// (simulated with 2048: 3.3e-6 in steps of 16 terms, 6.3e-6 in steps of 8).
double bound_of_sum(const Type& type, double rounding, int64_t terms) {
  return type.values == at::kDouble ? rounding : std::max(rounding, 8e-9 * static_cast<double>(terms));
}

// All products of a layer with its values in `type`, as device_products.h has them.
void check_layer(const Shape& shape, const Type& type) {
  const std::string name =
      str(kernels::short_name(type.values), " ", shape.rows, " ", shape.outputs, " ", shape.inputs);
  CAPTURE(name);
  const at::Tensor x = draws({shape.rows, shape.inputs}, type.values);
  const at::Tensor weight = draws({shape.outputs, shape.inputs}, type.values);
  const at::Tensor bias = draws({shape.outputs}, type.values);
  const at::Tensor dy = draws({shape.rows, shape.outputs}, type.values);
  const at::Tensor y = at::mm(in_double(x), in_double(weight).t());
  const double forward_bound = bound_of_sum(type, type.rounding, shape.inputs);
  CHECK(relative_error(kernels::device_linear_forward(x, weight, {}), y) <= forward_bound);
  // The bias may be added by a kernel of its own, to what was rounded.
  CHECK(relative_error(kernels::device_linear_forward(x, weight, bias), y + in_double(bias)) <= 2.0 * forward_bound);
  CHECK(relative_error(kernels::device_linear_backward_input(dy, weight), at::mm(in_double(dy), in_double(weight))) <=
        bound_of_sum(type, type.rounding, shape.outputs));

  const at::Tensor before = draws({shape.outputs, shape.inputs}, type.gradients);
  const at::Tensor bias_before = draws({shape.outputs}, type.gradients);
  const at::Tensor dw = in_double(before) + at::mm(in_double(dy).t(), in_double(x));
  const at::Tensor db = in_double(bias_before) + in_double(dy).sum(0);
  const at::Tensor gradient = before.clone(), bias_gradient = bias_before.clone();
  kernels::device_add_weight_gradient(gradient, dy, x, bias_gradient);
  const double gradient_bound = bound_of_sum(type, type.gradient_rounding, shape.rows);
  CHECK(relative_error(gradient, dw) <= gradient_bound);
  CHECK(relative_error(bias_gradient, db) <= 2.0 * gradient_bound);  // likewise
  const at::Tensor alone = before.clone();
  kernels::device_add_weight_gradient(alone, dy, x, {});
  CHECK(relative_error(alone, dw) <= gradient_bound);
}

// Measures all products of a layer.
void measure_layer(const Shape& shape, const Type& type) {
  for (const auto kind : {ProductKind::kForward, ProductKind::kBackwardInput, ProductKind::kWeightGradient}) {
    const auto extra = kind == ProductKind::kForward          ? ProductExtra::kBias
                       : kind == ProductKind::kWeightGradient ? ProductExtra::kBiasGradient
                                                              : ProductExtra::kNone;
    auto problem = kernels::product_problem(kind, extra, shape.rows, shape.outputs, shape.inputs, type.values);
    problem.result = kind == ProductKind::kWeightGradient ? type.gradients : type.values;
    kernels::measure_product(problem, gpu());
    auto plain = problem;
    plain.extra = ProductExtra::kNone;
    kernels::measure_product(plain, gpu());
    const kernels::KernelChoice* choice = kernels::kernel_table().find(problem.name());
    REQUIRE(choice != nullptr);
    CHECK(choice->microseconds > 0.0);
    CHECK(choice->fastest <= choice->microseconds);
  }
}

}  // namespace

TEST_SUITE_BEGIN("one rank");

TEST_CASE("gpu products: forward and backward of linear layers in every type") {
  const KernelScope scope({});
  for (const Type& type : types()) {
    for (const Shape& shape : kShapes) {
      check_layer(shape, type);
    }
  }
}

TEST_CASE("gpu products: the same with sums in a fixed order, and the same bits each time") {
  const KernelScope scope({Fp32Products::kExact, SumOrder::kFixed});
  for (const Type& type : types()) {
    check_layer({394, 256, 192}, type);
    // Few results of many terms: where K would be cut into parts.
    const at::Tensor x = draws({20000, 64}, type.values), dy = draws({20000, 72}, type.values);
    at::Tensor first;
    for (int round = 0; round < 5; ++round) {
      const at::Tensor gradient = at::zeros({72, 64}, x.options().dtype(type.gradients));
      const at::Tensor bias_gradient = at::zeros({72}, gradient.options());
      kernels::device_add_weight_gradient(gradient, dy, x, bias_gradient);
      first = round == 0 ? gradient : first;
      CHECK(gradient.equal(first));
    }
  }
}

// No check, because the library does not tell how it adds: the replicas of a bias never take this kernel.
TEST_CASE("gpu products: whether a bias gradient that cuBLASLt fuses has the same bits each time") {
  const KernelScope scope({});
  constexpr int kRounds = 20;
  for (const Type& type : types()) {
    auto problem =
        kernels::product_problem(ProductKind::kWeightGradient, ProductExtra::kBiasGradient, 20000, 72, 64, type.values);
    problem.result = type.gradients;
    auto& products = kernels::DeviceProducts::of(gpu());
    auto plan = products.plan(problem);
    const at::Tensor x = draws({20000, 64}, type.values), dy = draws({20000, 72}, type.values);
    const auto algorithms = plan.algorithms(8);
    int same = 0;
    for (const auto& algorithm : algorithms) {
      at::Tensor first;
      bool is_same = true;
      for (int round = 0; round < kRounds; ++round) {
        const at::Tensor gradient = at::zeros({72, 64}, x.options().dtype(type.gradients));
        const at::Tensor sums = at::zeros({72}, gradient.options());
        const bool ran = products.run(plan, algorithm, {x, dy, gradient, sums});
        first = first.defined() ? first : sums;
        is_same = is_same && ran && sums.equal(first);
      }
      same += is_same ? 1 : 0;
    }
    MESSAGE(kernels::short_name(type.values) << " with gradients in " << kernels::short_name(type.gradients) << ": "
                                             << same << " of " << algorithms.size() << " fused kernels have the same "
                                             << "bits " << kRounds << " times");
  }
}

TEST_CASE("gpu products: fp32 means no tf32, and tf32 is asked for") {
  const at::Tensor x = draws({394, 192}, at::kFloat), weight = draws({256, 192}, at::kFloat);
  const at::Tensor y = at::mm(in_double(x), in_double(weight).t());
  {
    const KernelScope scope({});
    CHECK(relative_error(kernels::device_linear_forward(x, weight, {}), y) <= 5e-6);
  }
  const KernelScope scope({Fp32Products::kTf32, SumOrder::kAny});
  const double error = relative_error(kernels::device_linear_forward(x, weight, {}), y);
  CHECK(error <= 2e-3);
  if (kernels::device_traits(gpu()).capability >= 80) {
    CHECK(error > 2e-5);
  }
}

TEST_CASE("gpu products: operands at odd addresses and without rows") {
  const KernelScope scope({});
  const at::Tensor memory = draws({37 * 23 + 1}, at::kHalf);
  const at::Tensor x = memory.narrow(0, 1, 37 * 23).view({37, 23});
  const at::Tensor weight = draws({8, 23}, at::kHalf), bias = draws({8}, at::kHalf);
  const at::Tensor y = at::mm(in_double(x), in_double(weight).t()) + in_double(bias);
  CHECK(relative_error(kernels::device_linear_forward(x, weight, bias), y) <= 2.0 * 6e-4);
  const at::Tensor nothing = x.narrow(0, 0, 0), dy = draws({0, 8}, at::kHalf);
  CHECK(kernels::device_linear_forward(nothing, weight, bias).size(0) == 0);
  CHECK(kernels::device_linear_backward_input(dy, weight).size(1) == 23);
  const at::Tensor gradient = at::zeros({8, 23}, x.options().dtype(at::kFloat));
  kernels::device_add_weight_gradient(gradient, dy, nothing, gradient.select(1, 0).contiguous());
  CHECK(gradient.abs().max().item<float>() == 0.0f);
}

TEST_CASE("gpu gelu: forward, backward and the sums of its gradient's columns") {
  for (const Type& type : types()) {
    for (const Shape& shape : {Shape{394, 256, 0}, Shape{37, 23, 0}, Shape{5000, 72, 0}, Shape{0, 8, 0}}) {
      CAPTURE(kernels::short_name(type.values));
      CAPTURE(shape.rows);
      const at::Tensor z = draws({shape.rows, shape.outputs}, type.values).mul_(2.0);
      const at::Tensor dy = draws({shape.rows, shape.outputs}, type.values);
      for (const auto& [kind, name] : {std::pair{GeluKind::kErf, "none"}, {GeluKind::kTanh, "tanh"}}) {
        CHECK(relative_error(kernels::device_gelu(z, kind), at::gelu(in_double(z), name)) <= type.rounding);
        const at::Tensor dz = at::gelu_backward(in_double(dy), in_double(z), name);
        const at::Tensor before = draws({shape.outputs}, type.gradients), sums = before.clone();
        const at::Tensor result = kernels::device_gelu_backward(dy, z, kind, sums);
        CHECK(relative_error(result, dz) <= type.rounding);
        // What is added up is what was stored.
        CHECK(relative_error(sums, in_double(before) + in_double(result).sum(0)) <= type.gradient_rounding);
        CHECK(kernels::device_gelu_backward(dy, z, kind, {}).equal(result));
        const at::Tensor columns = before.clone();
        kernels::device_add_column_sums(columns, result);
        CHECK(columns.equal(sums));
      }
    }
  }
}

// Measured and then taken, by whichever kernel: the shapes of the MLP, one that cuBLASLt refuses (23 is no multiple of
// 8), and what is asked for where GELU is no part of products.
TEST_CASE("gpu products: fc1 with GELU, and fc2's backward through it, fused or not") {
  for (const auto fp32 : {Fp32Products::kExact, Fp32Products::kTf32}) {
    const KernelScope scope({fp32, SumOrder::kAny});
    kernels::kernel_table() = {kernels::machine_text(kernels::device_traits(gpu()), SumOrder::kAny), {}};
    for (const Type& type : types()) {
      for (const auto& [rows, hidden, dim] : {Shape{394, 256, 192}, {37, 23, 41}, {2048, 3072, 768}}) {
        const std::string name = str(kernels::short_name(type.values), " ", rows, " ", hidden, " ", dim);
        CAPTURE(name);
        auto forward =
            kernels::product_problem(ProductKind::kForward, ProductExtra::kBiasGelu, rows, hidden, dim, type.values);
        auto backward = kernels::product_problem(ProductKind::kBackwardInput, ProductExtra::kGeluGradient, rows, dim,
                                                 hidden, type.values);
        for (auto* const problem : {&forward, &backward}) {
          problem->fp32 = type.values == at::kFloat ? fp32 : Fp32Products::kExact;
          kernels::measure_product(*problem, gpu());
          MESSAGE(problem->name() << ": " << kernels::kernel_table().find(problem->name())->text);
        }
        const at::Tensor x = draws({rows, dim}, type.values), weight = draws({hidden, dim}, type.values);
        const at::Tensor bias = draws({hidden}, type.values), next = draws({dim, hidden}, type.values);
        const at::Tensor dy = draws({rows, dim}, type.values);
        const double rounding = type.values == at::kFloat && fp32 == Fp32Products::kTf32 ? 2e-3 : type.rounding;
        const at::Tensor exact = at::mm(in_double(x), in_double(weight).t()) + in_double(bias);
        at::Tensor z;
        const at::Tensor y = kernels::device_linear_gelu_forward(x, weight, bias, GeluKind::kTanh, &z);
        CHECK(relative_error(z, exact) <= 2.0 * rounding);
        CHECK(relative_error(y, at::gelu(exact, "tanh")) <= 3.0 * rounding);
        CHECK(kernels::device_linear_gelu_forward(x, weight, bias, GeluKind::kTanh, nullptr).equal(y));
        CHECK(kernels::device_linear_pre_activation(x, weight, bias, GeluKind::kTanh).equal(z));
        const at::Tensor dz = kernels::device_linear_gelu_backward_input(dy, next, GeluKind::kTanh, z);
        const at::Tensor dh = at::mm(in_double(dy), in_double(next));
        CHECK(relative_error(dz, at::gelu_backward(dh, in_double(z), "tanh")) <=
              2.0 * bound_of_sum(type, rounding, dim));
      }
    }
  }
}

TEST_CASE("gpu products: what was measured is used, is right, and is used again") {
  const KernelScope scope({});
  kernels::kernel_table() = {kernels::machine_text(kernels::device_traits(gpu()), SumOrder::kAny), {}};
  const std::vector<Shape> shapes = {{394, 256, 192}, {2048, 512, 512}, kLongSums};
  const auto check_all = [&] {
    kernels::forget_product_plans();
    for (const Type& type : types()) {
      for (const Shape& shape : shapes) {
        check_layer(shape, type);
      }
    }
    CHECK(kernels::DeviceProducts::of(gpu()).unmeasured().empty());
  };
  for (const Type& type : types()) {
    for (const Shape& shape : shapes) {
      measure_layer(shape, type);
    }
  }
  check_all();
  const auto saved = kernels::KernelTable::parse(kernels::kernel_table().text());
  CHECK(saved == kernels::kernel_table());
  kernels::kernel_table() = {saved.machine, {}};
  std::vector<std::string> names;
  for (const auto& [name, choice] : saved.choices) {
    names.push_back(name);
  }
  CHECK(kernels::kernel_table().adopt(saved, names));
  check_all();
}

TEST_SUITE_END();
