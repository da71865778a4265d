// Linear layers and the products behind them, against products in fp64.
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mm.h>

#include <cstdlib>
#include <limits>

#include "parallel/tensor/linear.h"
#include "src/base/memory_tracker.h"
#include "src/kernels/gelu.h"
#include "src/kernels/gemm/blocked_products.h"
#include "src/kernels/gemm/matmul.h"
#include "src/kernels/gemm/packing.h"
#include "src/kernels/gemm/small_product.h"
#include "src/machine/processor.h"
#include "tests/support/compare.h"
#include "tests/support/contains.h"
#include "tests/support/group_of_one.h"
#include "tests/support/linear_layer.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using kernels::GeluKind;

namespace {

// A sum of k products in fp32 is off by at most k units of 6e-8 of the sum of absolute values; for random signs,
// whatever the order, by about sqrt(k) of them, relative to a largest element of about 4 sqrt(k).
constexpr double kUnit = 1.2e-7;
double float_bound(int64_t terms) {
  return kUnit * std::sqrt(static_cast<double>(terms));
}

struct MatmulShape {
  int64_t rows, inputs, outputs;
};

at::Tensor finished(at::Tensor y) {
  return y;
}
at::Tensor finished(tensor::RegionSum sum) {
  return std::move(sum).finish();
}

// Whole tiles, tails of every kind, single rows and columns.
const std::vector<MatmulShape> kMatmulShapes = {{512, 384, 256}, {257, 385, 129}, {300, 1000, 200},
                                                {1100, 77, 97},  {1, 384, 128},   {513, 1, 1},
                                                {5, 3, 700},     {97, 769, 193},  {2000, 16, 40}};

at::Tensor floats(at::IntArrayRef shape, uint64_t seed) {
  return normal_tensor(shape, seed).to(at::kFloat);
}

at::Tensor nan_tensor(at::IntArrayRef shape, at::ScalarType type) {
  return at::full(shape, std::numeric_limits<double>::quiet_NaN(), type);
}

// Types that the blocked products have on this machine.
std::vector<at::ScalarType> blocked_types() {
  std::vector<at::ScalarType> types = {at::kFloat};
  if (kernels::has_bf16_block_kernel()) {
    types.push_back(at::kBFloat16);
  }
  return types;
}

// Half a unit in the last digit, of the largest element at most.
double half_rounding(at::ScalarType type) {
  return type == at::kBFloat16 ? 0x1p-8 : type == at::kHalf ? 0x1p-11 : 0.0;
}

// GELU in fp32 against its exact value, of numbers of the size of the largest.
constexpr double kGeluError = 2.5e-7;

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  return at::mm(a.to(at::kDouble), b.to(at::kDouble));
}

// The nearest values of a type, in double.
at::Tensor rounded(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.to(type).to(at::kDouble);
}

void set(tensor::ParameterBuffer& buffer, const std::string& name, uint64_t seed) {
  const at::Tensor value = buffer.parameter(name).value;
  value.copy_(normal_tensor(value.sizes(), seed));
  buffer.bump_version();
}

}  // namespace

TEST_CASE("linear: blocked products of all shapes and types are the exact ones up to rounding") {
  for (const auto type : blocked_types()) {
    const double rounding = half_rounding(type);
    for (const auto& [rows, inputs, outputs] : kMatmulShapes) {
      CAPTURE(type);
      CAPTURE(rows);
      CAPTURE(inputs);
      CAPTURE(outputs);
      const at::Tensor x = normal_tensor({rows, inputs}, 1).to(type);
      const at::Tensor weight = normal_tensor({outputs, inputs}, 2).to(type);
      const at::Tensor bias = floats({outputs}, 3);
      const at::Tensor dy = normal_tensor({rows, outputs}, 4).to(type);

      const at::Tensor y = nan_tensor({rows, outputs}, type);
      const at::Tensor exact = product(x, weight.t()) + bias;
      for (const GeluKind kind : {GeluKind::kErf, GeluKind::kTanh}) {
        const at::Tensor activated = nan_tensor({rows, outputs}, type);
        kernels::blocked_forward(x, kernels::pack_transposed_panels(weight), bias, {y, activated, kind});
        CHECK(relative_error(y, exact) <= float_bound(inputs) + rounding);
        CHECK(relative_error(activated, at::gelu(exact, kind == GeluKind::kErf ? "none" : "tanh")) <=
              2.0 * float_bound(inputs) + kGeluError + rounding);
      }

      const at::Tensor dx = nan_tensor({rows, inputs}, type);
      kernels::blocked_backward_input(dy, kernels::pack_panels(weight), dx);
      CHECK(relative_error(dx, product(dy, weight)) <= float_bound(outputs) + rounding);

      for (const auto gradient_type : {at::kFloat, type}) {
        const at::Tensor gradient = at::full({outputs, inputs}, 0.5f, gradient_type);
        kernels::blocked_add_weight_gradient(gradient, dy, x);
        CHECK(relative_error(gradient, product(dy.t(), x) + 0.5) <= float_bound(rows) + half_rounding(gradient_type));
      }
    }
  }
}

TEST_CASE("linear: blocked products have the same bits with any number of threads") {
  for (const auto type : blocked_types()) {
    const at::Tensor x = normal_tensor({700, 400}, 1).to(type);
    const at::Tensor weight = normal_tensor({500, 400}, 2).to(type);
    const at::Tensor dy = normal_tensor({700, 500}, 3).to(type);
    kernels::PackedWeight packed(weight);
    int64_t version = 0;
    const auto compute = [&] {
      ++version;
      const at::Tensor gradient = at::zeros({500, 400}, at::kFloat);
      const at::Tensor bias_gradient = at::zeros({500}, at::kFloat);
      kernels::add_weight_gradient(gradient, dy, x, bias_gradient);
      at::Tensor z;
      const at::Tensor activated = kernels::linear_gelu_forward(x, packed, version, {}, GeluKind::kTanh, &z);
      return std::array{z,
                        activated,
                        kernels::linear_backward_input(dy, packed, version),
                        gradient,
                        bias_gradient,
                        kernels::gelu_backward(dy, z, GeluKind::kTanh, bias_gradient),
                        bias_gradient};
    };
    const int before = at::get_num_threads();
    at::set_num_threads(1);
    const auto one = compute();
    at::set_num_threads(3);
    const auto three = compute();
    at::set_num_threads(before);
    for (size_t i = 0; i < one.size(); ++i) {
      CAPTURE(i);
      CHECK(one[i].equal(three[i]));
    }
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
    const kernels::ProductShape shape{7, 11, 5, 9, 12, 13};
    const auto multiply = [&](kernels::Store store) {
      if (type == at::kFloat) {
        kernels::small_product(shape, store, left.const_data_ptr<float>(), right.const_data_ptr<float>(),
                               out.mutable_data_ptr<float>());
      } else {
        kernels::small_product(shape, store, left.const_data_ptr<double>(), right.const_data_ptr<double>(),
                               out.mutable_data_ptr<double>());
      }
    };
    const double bound = type == at::kFloat ? float_bound(5) : 1e-15;
    multiply(kernels::Store::kOverwrite);
    CHECK(relative_error(out.narrow(1, 0, 11), exact) <= bound);
    multiply(kernels::Store::kAdd);
    CHECK(relative_error(out.narrow(1, 0, 11), exact * 2.0) <= bound);
    CHECK(out.narrow(1, 11, 2).isnan().all().item<bool>());
  }
  kernels::finish_small_products();
}

TEST_CASE("linear: forward and backward of all three kinds, in all types, small and blocked") {
  for (const MatmulShape& shape : {MatmulShape{6, 5, 4}, MatmulShape{300, 130, 140}}) {
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
      CAPTURE(type);
      const double sums = type == at::kDouble ? 1e-14 : float_bound(shape.rows);
      const double bound = sums + half_rounding(type);
      const at::Tensor x = rounded(normal_tensor({2, shape.rows / 2, shape.inputs}, 1), type);
      const at::Tensor dy = rounded(normal_tensor({2, shape.rows / 2, shape.outputs}, 2), type);
      const at::Tensor rows = x.view({-1, shape.inputs});
      const at::Tensor drows = dy.view({-1, shape.outputs});
      const auto check = [&](auto&& layer, tensor::ParameterBuffer& buffer) {
        const at::Tensor weight = buffer.parameter("layer.weight").value.to(at::kDouble);
        const at::Tensor bias = buffer.parameter("layer.bias").value.to(at::kDouble);
        const at::Tensor input = x.to(type, false, true).requires_grad_();
        const auto context = test_context(2, Mode::kTraining);
        const at::Tensor y = finished(layer.forward(input, context));
        torch::autograd::backward({y}, {dy.to(type)});
        CHECK(relative_error(y.detach(), (product(rows, weight.t()) + bias).view(dy.sizes())) <= bound);
        CHECK(relative_error(input.grad(), product(drows, weight).view(x.sizes())) <= bound);
        CHECK(relative_error(buffer.parameter("layer.weight").gradient, product(drows.t(), rows)) <= sums);
        CHECK(relative_error(buffer.parameter("layer.bias").gradient, drows.sum(0)) <= sums);
      };
      const auto terms = tensor::Terms::kWeightAndBias;
      auto& group = group_of_one();
      for (int kind = 0; kind < 3; ++kind) {
        CAPTURE(kind);
        auto buffer = make_linear_layer(shape.inputs, shape.outputs, type);
        set(buffer, "layer.weight", 3);
        set(buffer, "layer.bias", 4);
        if (kind == 0) {
          check(tensor::Linear(buffer, "layer", terms, group), buffer);
        } else if (kind == 1) {
          check(tensor::ColumnParallelLinear(buffer, "layer", terms, group), buffer);
        } else {
          check(tensor::RowParallelLinear(buffer, "layer", terms, group), buffer);
        }
      }
    }
  }
}

TEST_CASE("linear: packed weights are renewed when the version of the buffer has risen, in all types") {
  const MatmulShape shape{300, 130, 140};
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    CAPTURE(type);
    auto buffer = make_linear_layer(shape.inputs, shape.outputs, type);
    tensor::LinearProducts products(buffer, "layer", tensor::Terms::kWeight, 1);
    const at::Tensor x = normal_tensor({shape.rows, shape.inputs}, 1).to(type);
    const at::Tensor dy = normal_tensor({shape.rows, shape.outputs}, 2).to(type);
    for (const uint64_t seed : {3, 4}) {
      set(buffer, "layer.weight", seed);
      const at::Tensor weight = buffer.parameter("layer.weight").value;
      const double bound = float_bound(shape.outputs) + half_rounding(type);
      CHECK(relative_error(products.forward(x, tensor::Terms::kWeight), product(x, weight.t())) <= bound);
      CHECK(relative_error(products.backward_input(dy), product(dy, weight)) <= bound);
    }
  }
}

TEST_CASE("linear: gradients of half-length types are added to") {
  const at::Tensor x = normal_tensor({301, 130}, 1);
  const at::Tensor dy = normal_tensor({301, 70}, 2);
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor gradient = at::full({70, 130}, 2.0, type);
    const at::Tensor bias_gradient = at::full({70}, 2.0, type);
    kernels::add_weight_gradient(gradient, dy.to(type), x.to(type), bias_gradient);
    const double bound = float_bound(301) + half_rounding(type);
    CHECK(relative_error(gradient, product(dy.to(type).t(), x.to(type)) + 2.0) <= bound);
    CHECK(relative_error(bias_gradient, rounded(dy, type).sum(0) + 2.0) <= bound);
  }
}

TEST_CASE("linear: no rows are allowed, and leave gradients as they are") {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    kernels::PackedWeight weight(normal_tensor({6, 5}, 1).to(type));
    const at::Tensor x = at::zeros({0, 5}, type);
    const at::Tensor dy = at::zeros({0, 6}, type);
    CHECK(kernels::linear_forward(x, weight, 1, {}).sizes() == dy.sizes());
    CHECK(kernels::linear_gelu_forward(x, weight, 1, {}, GeluKind::kErf, nullptr).sizes() == dy.sizes());
    CHECK(kernels::linear_backward_input(dy, weight, 1).sizes() == x.sizes());
    const at::Tensor gradient = at::full({6, 5}, 2.0, at::kDouble);
    const at::Tensor bias_gradient = at::full({6}, 3.0, at::kDouble);
    kernels::add_weight_gradient(gradient, dy, x, bias_gradient);
    CHECK((gradient == 2.0).all().item<bool>());
    CHECK((bias_gradient == 3.0).all().item<bool>());
  }
}

TEST_CASE("linear: a weight has the copies that large products take, and only those") {
  constexpr int64_t kSide = 1024;
  const MemoryTracker::Attachment attachment;
  const auto copies = [] { return MemoryTracker::report().current[static_cast<size_t>(MemoryClass::kPackedWeights)]; };
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    CAPTURE(type);
    const at::Tensor x = at::full({kSide, kSide}, 0.5, type);
    kernels::PackedWeight weight(at::full({kSide, kSide}, 0.25, type));
    const int64_t before = copies();
    const bool takes_copies = kernels::copy_for_products(weight, 1);
    const int64_t after = copies();
    CHECK(takes_copies == (after > before));
    kernels::linear_forward(x, weight, 1, {});
    kernels::linear_backward_input(x, weight, 1);
    CHECK(copies() == after);
    weight.weight().fill_(2.0);
    kernels::copy_for_products(weight, 2);
    CHECK(copies() == after);
    CHECK((kernels::linear_forward(x, weight, 2, {}) == static_cast<double>(kSide)).all().item<bool>());
  }
}

TEST_CASE("linear: the kernel depends on type and size, and its text says which") {
  using kernels::ProductKernel;
  const at::Tensor large = at::zeros({1024, 64}, at::kFloat);
  const auto kernel_for = [&](at::ScalarType type) { return kernels::choose_product_kernel(large.to(type), 1024); };
  CHECK(kernel_for(at::kDouble) == ProductKernel::kLibrary);
  CHECK(kernel_for(at::kHalf) == ProductKernel::kConverted);
  CHECK(kernel_for(at::kBFloat16) ==
        (kernels::has_bf16_block_kernel() ? ProductKernel::kBlocked : ProductKernel::kConverted));
  CHECK(kernels::choose_product_kernel(large.narrow(0, 0, 4), 1024) == ProductKernel::kLibrary);
  CHECK(kernels::choose_product_kernel(large.narrow(0, 0, 0), 1024) == ProductKernel::kLibrary);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const std::string text = kernels::product_kernel_text(at::kCPU, type, GeluKind::kErf);
    CHECK((text.find("converted") != std::string::npos) == (kernel_for(type) == ProductKernel::kConverted));
    CHECK((text.find("own blocks") != std::string::npos) >= (kernel_for(type) == ProductKernel::kBlocked));
    CHECK_MESSAGE(contains(text, "bf16") == (type == at::kBFloat16), text);
    MESSAGE(std::string(at::toString(type)), ": ", text);
  }
}

// CMakeLists.txt runs it once more with each of these settings.
TEST_CASE("linear: the text names a setting that keeps oneDNN from instructions") {
  const char* const variable = std::getenv("ONEDNN_MAX_CPU_ISA");
  const std::string set = variable == nullptr ? "" : variable;
  if ((set != "AVX512_CORE" && set != "AVX2") || !train::this_processor().has("avx512_bf16")) {
    MESSAGE("skipped: ONEDNN_MAX_CPU_ISA is not AVX512_CORE or AVX2, or this processor has no bf16 instructions");
    return;
  }
  CHECK_FALSE(kernels::has_bf16_block_kernel());
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const std::string text = kernels::product_kernel_text(at::kCPU, type, GeluKind::kErf);
    const bool is_kept_back = kernels::multiplies_in_fp32(type) && set == "AVX2";
    CHECK_MESSAGE(contains(text, "ONEDNN_MAX_CPU_ISA=" + set + " keeps") == is_kept_back, text);
    CHECK_MESSAGE(contains(text, "ONEDNN_MAX_CPU_ISA=" + set + " forbids") == (type == at::kBFloat16), text);
  }
}
