// Which algorithms of a library may compute a product, and what the kernels' options set in LibTorch.
#include "src/kernels/gemm/device_products.h"

#include <ATen/Context.h>
#include <doctest/doctest.h>

#include "tests/support/contains.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using kernels::AlgorithmTraits;
using kernels::Fp32Products;
using kernels::PartSums;
using kernels::ProductExtra;
using kernels::ProductKind;
using kernels::SumOrder;

namespace {

bool promised(const AlgorithmTraits& algorithm, ProductExtra extra, at::ScalarType result) {
  auto problem = kernels::product_problem(ProductKind::kForward, extra, 8, 8, 8, result);
  return kernels::is_as_promised(problem, algorithm);
}

}  // namespace

TEST_CASE("product rules: an algorithm that does not cut the inner dimension always is as promised") {
  for (const auto result : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const auto extra : {ProductExtra::kNone, ProductExtra::kBias, ProductExtra::kBiasGradient}) {
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

TEST_CASE("product rules: a bias is not added to what was rounded to half precision before") {
  for (const auto result : {at::kHalf, at::kBFloat16}) {
    CHECK_FALSE(promised({2, PartSums::kInSumType}, ProductExtra::kBias, result));
    CHECK_FALSE(promised({2, PartSums::kNone}, ProductExtra::kBias, result));
  }
  CHECK(promised({2, PartSums::kInSumType}, ProductExtra::kBias, at::kFloat));
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
