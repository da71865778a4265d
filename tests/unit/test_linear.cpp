// Linear layers and the products behind them, against products in fp64.
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>

#include <limits>

#include "parallel/tensor/blocked_products.h"
#include "parallel/tensor/linear.h"
#include "parallel/tensor/small_product.h"
#include "tests/support/compare.h"
#include "tests/support/group_of_one.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

// A sum of k products in fp32 is off by at most k units of 6e-8 of the sum of absolute values; for random signs,
// whatever the order, by about sqrt(k) of them, relative to a largest element of about 4 sqrt(k).
constexpr double kUnit = 1.2e-7;
double float_bound(int64_t terms) {
  return kUnit * std::sqrt(static_cast<double>(terms));
}

struct Shape {
  int64_t rows, inputs, outputs;
};

// Whole tiles, tails of every kind, single rows and columns.
const std::vector<Shape> kShapes = {{512, 384, 256}, {257, 385, 129}, {300, 1000, 200}, {1100, 77, 97}, {1, 384, 128},
                                    {513, 1, 1},     {5, 3, 700},     {97, 769, 193},   {2000, 16, 40}};

at::Tensor floats(at::IntArrayRef shape, uint64_t seed) {
  return normal_tensor(shape, seed).to(at::kFloat);
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  return at::mm(a.to(at::kDouble), b.to(at::kDouble));
}

// A weight [M, K] and a bias in a buffer, under the name "layer".
tensor::ParameterBuffer make_layer(const Shape& shape, at::ScalarType type) {
  using tensor::DecayGroup;
  std::vector<tensor::ParameterSpec> specs = {
      tensor::replicated("layer.weight", {shape.outputs, shape.inputs}, {}, DecayGroup::kMatrix),
      tensor::replicated("layer.bias", {shape.outputs}, {}, DecayGroup::kVector)};
  auto layout = tensor::make_flat_layout(specs, 1, 1);
  return {std::move(specs), std::move(layout), type, type, at::kCPU};
}

void set(tensor::ParameterBuffer& buffer, const std::string& name, uint64_t seed) {
  const at::Tensor value = buffer.parameter(name).value;
  value.copy_(normal_tensor(value.sizes(), seed));
  buffer.bump_version();
}

}  // namespace

TEST_CASE("linear: blocked products of all shapes are the exact ones up to fp32 rounding") {
  for (const auto& [rows, inputs, outputs] : kShapes) {
    CAPTURE(rows);
    CAPTURE(inputs);
    CAPTURE(outputs);
    const at::Tensor x = floats({rows, inputs}, 1);
    const at::Tensor weight = floats({outputs, inputs}, 2);
    const at::Tensor bias = floats({outputs}, 3);
    const at::Tensor dy = floats({rows, outputs}, 4);
    const at::Tensor panels = tensor::pack_panels(weight);

    const at::Tensor exact = product(x, weight.t());
    CHECK(relative_error(tensor::blocked_forward(x, panels, outputs, {}), exact) <= float_bound(inputs));
    CHECK(relative_error(tensor::blocked_forward(x, panels, outputs, bias), exact + bias) <= float_bound(inputs));
    CHECK(relative_error(tensor::blocked_backward_input(dy, weight), product(dy, weight)) <= float_bound(outputs));

    const at::Tensor gradient = at::full({outputs, inputs}, 0.5f);
    tensor::blocked_add_weight_gradient(gradient, dy, x);
    CHECK(relative_error(gradient, product(dy.t(), x) + 0.5) <= float_bound(rows));
  }
}

TEST_CASE("linear: blocked products have the same bits with any number of threads") {
  const at::Tensor x = floats({700, 400}, 1);
  const at::Tensor weight = floats({500, 400}, 2);
  const at::Tensor dy = floats({700, 500}, 3);
  const auto compute = [&] {
    const at::Tensor gradient = at::zeros({500, 400}, x.options());
    tensor::blocked_add_weight_gradient(gradient, dy, x);
    return std::array{tensor::blocked_forward(x, tensor::pack_panels(weight), 500, {}),
                      tensor::blocked_backward_input(dy, weight), gradient};
  };
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = compute();
  at::set_num_threads(3);
  const auto three = compute();
  at::set_num_threads(before);
  for (size_t i = 0; i < one.size(); ++i) {
    CHECK(one[i].equal(three[i]));
  }
}

TEST_CASE("linear: small products overwrite and add, in both types") {
  const at::Tensor a = normal_tensor({7, 9}, 1);
  const at::Tensor b = normal_tensor({9, 12}, 2);
  const at::Tensor exact = product(a.narrow(1, 0, 5), b.narrow(0, 0, 5).narrow(1, 0, 11));
  for (const auto type : {at::kFloat, at::kDouble}) {
    const at::Tensor left = a.to(type);
    const at::Tensor right = b.to(type);
    // What is not read or written is not a number.
    const at::Tensor out = at::full({7, 13}, std::numeric_limits<double>::quiet_NaN(), left.options());
    const tensor::ProductShape shape{7, 11, 5, 9, 12, 13};
    const auto multiply = [&](tensor::Store store) {
      if (type == at::kFloat) {
        tensor::small_product(shape, store, left.const_data_ptr<float>(), right.const_data_ptr<float>(),
                              out.mutable_data_ptr<float>());
      } else {
        tensor::small_product(shape, store, left.const_data_ptr<double>(), right.const_data_ptr<double>(),
                              out.mutable_data_ptr<double>());
      }
    };
    const double bound = type == at::kFloat ? float_bound(5) : 1e-15;
    multiply(tensor::Store::kOverwrite);
    CHECK(relative_error(out.narrow(1, 0, 11), exact) <= bound);
    multiply(tensor::Store::kAdd);
    CHECK(relative_error(out.narrow(1, 0, 11), exact * 2.0) <= bound);
    CHECK(out.narrow(1, 11, 2).isnan().all().item<bool>());
  }
  tensor::finish_small_products();
}

TEST_CASE("linear: forward and backward of all three kinds, fp64 and fp32, small and blocked") {
  for (const Shape& shape : {Shape{6, 5, 4}, Shape{300, 130, 140}}) {
    for (const auto type : {at::kDouble, at::kFloat}) {
      const double bound = type == at::kDouble ? 1e-14 : float_bound(shape.rows);
      const at::Tensor x = normal_tensor({2, shape.rows / 2, shape.inputs}, 1);
      const at::Tensor dy = normal_tensor({2, shape.rows / 2, shape.outputs}, 2);
      const at::Tensor rows = x.view({-1, shape.inputs});
      const at::Tensor drows = dy.view({-1, shape.outputs});
      const auto check = [&](auto&& layer, tensor::ParameterBuffer& buffer) {
        const at::Tensor weight = buffer.parameter("layer.weight").value.to(at::kDouble);
        const at::Tensor bias = buffer.parameter("layer.bias").value.to(at::kDouble);
        const at::Tensor input = x.to(type, false, true).requires_grad_();
        const auto context = test_context(2, tensor::Mode::kTraining);
        const at::Tensor y = layer.forward(input, context);
        torch::autograd::backward({y}, {dy.to(type)});
        CHECK(relative_error(y.detach(), (product(rows, weight.t()) + bias).view(dy.sizes())) <= bound);
        CHECK(relative_error(input.grad(), product(drows, weight).view(x.sizes())) <= bound);
        CHECK(relative_error(buffer.parameter("layer.weight").gradient, product(drows.t(), rows)) <= bound);
        CHECK(relative_error(buffer.parameter("layer.bias").gradient, drows.sum(0)) <= bound);
      };
      const auto terms = tensor::Terms::kWeightAndBias;
      auto& group = group_of_one();
      for (int kind = 0; kind < 3; ++kind) {
        CAPTURE(kind);
        auto buffer = make_layer(shape, type);
        set(buffer, "layer.weight", 3);
        set(buffer, "layer.bias", 4);
        if (kind == 0) {
          check(tensor::Linear(buffer, "layer", terms), buffer);
        } else if (kind == 1) {
          check(tensor::ColumnParallelLinear(buffer, "layer", terms, group), buffer);
        } else {
          check(tensor::RowParallelLinear(buffer, "layer", terms, group), buffer);
        }
      }
    }
  }
}

TEST_CASE("linear: a packed weight is renewed when the version of the buffer has risen") {
  const Shape shape{300, 130, 140};
  auto buffer = make_layer(shape, at::kFloat);
  tensor::Linear layer(buffer, "layer", tensor::Terms::kWeight);
  const at::Tensor x = floats({shape.rows, shape.inputs}, 1);
  const auto context = test_context(1, tensor::Mode::kEvaluation);
  for (const uint64_t seed : {3, 4}) {
    set(buffer, "layer.weight", seed);
    const at::Tensor exact = product(x, buffer.parameter("layer.weight").value.t());
    CHECK(relative_error(layer.forward(x, context), exact) <= float_bound(shape.inputs));
  }
}

TEST_CASE("linear: the kernel depends on type and size") {
  const at::Tensor large = at::zeros({1024, 64}, at::kFloat);
  const auto kernel = tensor::choose_product_kernel(large, 1024);
  CHECK(tensor::choose_product_kernel(large.to(at::kDouble), 1024) == tensor::ProductKernel::kLibrary);
  CHECK(tensor::choose_product_kernel(large.narrow(0, 0, 4), 1024) == tensor::ProductKernel::kLibrary);
  CHECK(tensor::choose_product_kernel(large.narrow(0, 0, 0), 1024) == tensor::ProductKernel::kLibrary);
  MESSAGE("large fp32 products here are ",
          std::string(kernel == tensor::ProductKernel::kBlocked ? "blocked" : "the library's"));
}
