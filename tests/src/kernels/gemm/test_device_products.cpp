// Products as BLAS sees them, against LibTorch's; names of choices; which algorithms are allowed; GELU's elements.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <vector>

#include "src/kernels/gelu_cuda.h"
#include "src/kernels/gemm/device_products.h"
#include "tests/support/contains.h"

using namespace vit_hybrid;
using kernels::ColumnMajor;
using kernels::ProductExtra;
using kernels::ProductKind;
using kernels::ProductProblem;
using namespace vit_hybrid::testing;
using kernels::AlgorithmTraits;
using kernels::Fp32Products;
using kernels::PartSums;
using kernels::SumOrder;

namespace {

double element(const double* matrix, const ColumnMajor& shape, int64_t row, int64_t column) {
  return shape.transposed ? matrix[column + row * shape.rows] : matrix[row + column * shape.rows];
}

// What BLAS does with column-major matrices, element by element.
void blas_product(const kernels::ColumnMajorProduct& product, const double* a, const double* b, double* d) {
  const int64_t depth = product.a.transposed ? product.a.rows : product.a.columns;
  for (int64_t column = 0; column < product.d.columns; ++column) {
    for (int64_t row = 0; row < product.d.rows; ++row) {
      double sum = product.accumulates ? d[row + column * product.d.rows] : 0.0;
      for (int64_t k = 0; k < depth; ++k) {
        sum += element(a, product.a, row, k) * element(b, product.b, k, column);
      }
      d[row + column * product.d.rows] = sum;
    }
  }
}

struct Layer {
  at::Tensor x = at::randn({5, 3}, at::kDouble);       // [R, K]
  at::Tensor weight = at::randn({4, 3}, at::kDouble);  // [M, K]
  at::Tensor dy = at::randn({5, 4}, at::kDouble);      // [R, M]

  at::Tensor by_blas(ProductKind kind, at::Tensor result) const {
    const auto product = kernels::column_major(
        kernels::product_problem(kind, ProductExtra::kNone, x.size(0), weight.size(0), x.size(1), at::kDouble));
    CHECK(product.d.rows * product.d.columns == result.numel());
    const at::Tensor& a = kind == ProductKind::kWeightGradient ? x : weight;
    const at::Tensor& b = kind == ProductKind::kForward ? x : dy;
    blas_product(product, a.const_data_ptr<double>(), b.const_data_ptr<double>(), result.data_ptr<double>());
    return result;
  }
};

double difference(const at::Tensor& a, const at::Tensor& b) {
  return a.sub(b).abs().max().item<double>();
}

}  // namespace

TEST_CASE("product problem: column-major products give the row-major results") {
  const Layer layer;
  const at::Tensor y = layer.by_blas(ProductKind::kForward, at::zeros({5, 4}, at::kDouble));
  CHECK(difference(y, at::mm(layer.x, layer.weight.t())) <= 1e-14);
  const at::Tensor dx = layer.by_blas(ProductKind::kBackwardInput, at::zeros({5, 3}, at::kDouble));
  CHECK(difference(dx, at::mm(layer.dy, layer.weight)) <= 1e-14);
  const at::Tensor before = at::randn({4, 3}, at::kDouble);
  const at::Tensor dw = layer.by_blas(ProductKind::kWeightGradient, before.clone());
  CHECK(difference(dw, before + at::mm(layer.dy.t(), layer.x)) <= 1e-14);
}

TEST_CASE("product problem: a bias runs along D's rows, and its gradient is B's sum over k") {
  const auto forward =
      kernels::column_major(kernels::product_problem(ProductKind::kForward, ProductExtra::kBias, 5, 4, 3, at::kFloat));
  CHECK(forward.d.rows == 4);
  const auto gradient = kernels::column_major(
      kernels::product_problem(ProductKind::kWeightGradient, ProductExtra::kBiasGradient, 5, 4, 3, at::kFloat));
  CHECK(gradient.b.rows == 4);     // B is dy
  CHECK(gradient.d.columns == 4);  // the length of cuBLASLt's gradient from B
  CHECK(gradient.b.transposed);    // so k runs over the rows of dy
}

TEST_CASE("product problem: problems that differ have names that differ") {
  std::set<std::string> names;
  std::set<ProductProblem> problems;
  const auto note = [&](const ProductProblem& problem) {
    names.insert(problem.name());
    problems.insert(problem);
  };
  const ProductProblem base =
      kernels::product_problem(ProductKind::kForward, ProductExtra::kNone, 12, 34, 56, at::kFloat);
  CHECK(base.name() == "forward R12 M34 K56 fp32>fp32 16B");
  note(base);
  std::vector<ProductProblem> others(12, base);
  others[0].kind = ProductKind::kBackwardInput;
  others[1].extra = ProductExtra::kBias;
  others[2].rows = 13;
  others[3].outputs = 13;
  others[4].inputs = 13;
  others[5].type = at::kBFloat16;
  others[6].result = at::kDouble;
  others[7].fp32 = kernels::Fp32Products::kTf32;
  others[8].alignment = 8;
  others[9].extra = ProductExtra::kBiasGradient;
  others[10].extra = ProductExtra::kBiasGelu;
  others[11].extra = ProductExtra::kGeluGradient;
  for (const ProductProblem& other : others) {
    note(other);
  }
  CHECK(names.size() == 13);
  CHECK(problems.size() == 13);
  CHECK(base.flops() == 2.0 * 12 * 34 * 56);
  CHECK(others[10].name() == "forward+bias+gelu R12 M34 K56 fp32>fp32 16B");
  CHECK((others[10].without_extra() == others[1]));  // where GELU is a kernel of its own, the bias stays
  CHECK((others[11].without_extra() == base));
}

TEST_CASE("normal distribution: the quick one is within 3e-7 of erfc, the exact one within rounding") {
  double quick_error = 0.0, exact_error = 0.0, slope_error = 0.0;
  for (int i = -12000; i <= 12000; ++i) {
    const auto z = static_cast<float>(i) * 1e-3f;
    const double wanted = 0.5 * std::erfc(-static_cast<double>(z) / std::sqrt(2.0));
    const double density = std::exp(-0.5 * static_cast<double>(z) * z) / std::sqrt(2.0 * std::acos(-1.0));
    const auto quick = kernels::quick_normal<kernels::LibraryFunctions>(z);
    const auto exact = kernels::exact_normal(static_cast<double>(z));
    quick_error = std::max(quick_error, std::fabs(quick.distribution - wanted));
    exact_error = std::max(exact_error, std::fabs(exact.distribution - wanted));
    slope_error = std::max(slope_error, std::fabs(kernels::gelu_slope(z, quick) - (wanted + z * density)));
    slope_error =
        std::max(slope_error, std::fabs(kernels::gelu_slope(static_cast<double>(z), exact) - (wanted + z * density)));
  }
  CHECK(quick_error < 3e-7);
  CHECK(quick_error > 1e-9);  // it is an approximation: what is measured is what the kernels compute
  CHECK(exact_error < 1e-15);
  CHECK(slope_error < 5e-7);
  CHECK(kernels::gelu_value(-3.0, kernels::exact_normal(-3.0)) == doctest::Approx(-3.0 * 0.0013498980316300946));
}

TEST_CASE(
    "normal distribution: its stand-in with tanh, and GELU's slope, in double and in float, and nothing overflows") {
  double double_error = 0.0, float_error = 0.0;
  const double scale = std::sqrt(2.0 / std::acos(-1.0));
  for (int i = -12000; i <= 12000; ++i) {
    const double z = i * 1e-3;
    const double argument = scale * (z + 0.044715 * z * z * z);
    const double wanted = 0.5 * (1.0 + std::tanh(argument));
    const double density = 0.5 * scale * (1.0 + 3.0 * 0.044715 * z * z) / std::pow(std::cosh(argument), 2);
    const auto worst = [&](const auto& normal, auto at) {
      return std::max(
          std::fabs(static_cast<double>(kernels::gelu_value(at, normal)) - z * wanted) / (1.0 + std::fabs(z)),
          std::fabs(static_cast<double>(kernels::gelu_slope(at, normal)) - (wanted + z * density)));
    };
    double_error = std::max(double_error, worst(kernels::tanh_normal<kernels::LibraryFunctions>(z), z));
    const auto single = static_cast<float>(z);
    float_error = std::max(float_error, worst(kernels::tanh_normal<kernels::LibraryFunctions>(single), single));
  }
  CHECK(double_error < 2e-15);
  CHECK(float_error < 2e-6);
  for (const float far : {20.0f, 1e20f, 3e38f}) {
    const auto above = kernels::tanh_normal<kernels::LibraryFunctions>(far);
    const auto below = kernels::tanh_normal<kernels::LibraryFunctions>(-far);
    CHECK(kernels::gelu_value(far, above) == far);
    CHECK(kernels::gelu_slope(far, above) == 1.0f);
    CHECK(kernels::gelu_value(-far, below) == 0.0f);
    CHECK(kernels::gelu_slope(-far, below) == 0.0f);
  }
  const float nan = std::nanf("");
  CHECK(std::isnan(kernels::gelu_value(nan, kernels::tanh_normal<kernels::LibraryFunctions>(nan))));
  CHECK(std::isnan(kernels::gelu_slope(nan, kernels::tanh_normal<kernels::LibraryFunctions>(nan))));
}

TEST_CASE("product rules: GELU is a part of products with tanh alone, where rounding hides how exact it is") {
  constexpr auto kErf = kernels::GeluKind::kErf, kTanh = kernels::GeluKind::kTanh;
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    CHECK(kernels::may_fuse_gelu(kTanh, type, Fp32Products::kExact));
    CHECK_FALSE(kernels::may_fuse_gelu(kErf, type, Fp32Products::kExact));
  }
  CHECK(kernels::may_fuse_gelu(kTanh, at::kFloat, Fp32Products::kTf32));
  CHECK_FALSE(kernels::may_fuse_gelu(kTanh, at::kFloat, Fp32Products::kExact));
  CHECK_FALSE(kernels::may_fuse_gelu(kTanh, at::kDouble, Fp32Products::kExact));
}

namespace {

bool promised(const AlgorithmTraits& algorithm, ProductExtra extra, at::ScalarType result) {
  auto problem = kernels::product_problem(ProductKind::kForward, extra, 8, 8, 8, result);
  return kernels::is_as_promised(problem, algorithm);
}

}  // namespace

TEST_CASE("product rules: an algorithm that does not cut the inner dimension always is as promised") {
  for (const auto result : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const auto extra : {ProductExtra::kNone, ProductExtra::kBias, ProductExtra::kBiasGradient,
                             ProductExtra::kBiasGelu, ProductExtra::kGeluGradient}) {
      CHECK(promised({1, PartSums::kNone}, extra, result));
      CHECK_FALSE(promised({2, PartSums::kInResult}, extra, result));
    }
  }
}

TEST_CASE("product rules: sums of parts are never kept in half precision") {
  for (const auto result : {at::kDouble, at::kFloat}) {
    CHECK(promised({4, PartSums::kInResultType}, ProductExtra::kNone, result));
    CHECK(promised({4, PartSums::kInResultType}, ProductExtra::kBiasGradient, result));
  }
  for (const auto result : {at::kHalf, at::kBFloat16}) {
    CHECK_FALSE(promised({4, PartSums::kInResultType}, ProductExtra::kNone, result));
    CHECK(promised({4, PartSums::kInSumType}, ProductExtra::kNone, result));
  }
  // It is the result that counts: gradients of half-precision factors in fp32.
  auto gradient = kernels::product_problem(ProductKind::kWeightGradient, ProductExtra::kNone, 8, 8, 8, at::kHalf);
  CHECK_FALSE(kernels::is_as_promised(gradient, {4, PartSums::kInResultType}));
  gradient.result = at::kFloat;
  CHECK(kernels::is_as_promised(gradient, {4, PartSums::kInResultType}));
}

TEST_CASE("product rules: a bias is not added to what was rounded to half precision before, nor is GELU applied") {
  for (const auto extra : {ProductExtra::kBias, ProductExtra::kBiasGelu, ProductExtra::kGeluGradient}) {
    for (const auto result : {at::kHalf, at::kBFloat16}) {
      CHECK_FALSE(promised({2, PartSums::kInSumType}, extra, result));
      CHECK_FALSE(promised({2, PartSums::kNone}, extra, result));
    }
    CHECK(promised({2, PartSums::kInSumType}, extra, at::kFloat));
  }
}

TEST_CASE("product rules: the workspace is part of what choices hold for") {
  CHECK(kernels::product_workspace_bytes(70) == 32 << 20);
  CHECK(kernels::product_workspace_bytes(89) == 32 << 20);
  CHECK(kernels::product_workspace_bytes(90) == 64 << 20);
  CHECK(kernels::product_workspace_bytes(120) == 64 << 20);
  kernels::DeviceTraits traits;
  traits.capability = 90;
  CHECK(contains(kernels::machine_text(traits, SumOrder::kAny), "sums in any order, products in 64 MiB"));
  traits.capability = 80;
  CHECK(contains(kernels::machine_text(traits, SumOrder::kFixed), "sums in a fixed order, products in 32 MiB"));
}

TEST_CASE("device kernels: LibTorch takes TF32 where it is asked for, and sums never in half precision") {
  at::Context& libtorch = at::globalContext();
  const auto before = kernels::device_kernel_options();
  libtorch.setAllowTF32CuBLAS(true);  // as TORCH_ALLOW_TF32_CUBLAS_OVERRIDE has it
  libtorch.setAllowTF32CuDNN(true);
  libtorch.setAllowFP16ReductionCuBLAS(true);
  libtorch.setAllowBF16ReductionCuBLAS(true);
  // True or false, or in newer versions an enumeration.
  const auto fp16_allowed = libtorch.allowFP16ReductionCuBLAS();
  const auto bf16_allowed = libtorch.allowBF16ReductionCuBLAS();
  kernels::set_device_kernel_options({Fp32Products::kExact, SumOrder::kAny});
  CHECK_FALSE(libtorch.allowTF32CuBLAS());
  CHECK_FALSE(libtorch.allowTF32CuDNN());
  CHECK((libtorch.allowFP16ReductionCuBLAS() != fp16_allowed));
  CHECK((libtorch.allowBF16ReductionCuBLAS() != bf16_allowed));
  kernels::set_device_kernel_options({Fp32Products::kTf32, SumOrder::kAny});
  CHECK(libtorch.allowTF32CuBLAS());
  CHECK(libtorch.allowTF32CuDNN());
  CHECK((libtorch.allowBF16ReductionCuBLAS() != bf16_allowed));
  kernels::set_device_kernel_options(before);
}
