// The kernel of the host's fp32 products: the choice by times, what is measured, and that both kernels are right.
#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "src/kernels/gemm/matmul.h"
#include "src/kernels/gemm/small_product.h"
#include "tests/support/compare.h"
#include "tests/support/contains.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using kernels::HostLayer;
using kernels::ProductKernel;

namespace {

constexpr auto kBlocked = ProductKernel::kBlocked;
constexpr auto kLibrary = ProductKernel::kLibrary;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

const std::string kMaker = kernels::processor_maker_text();

kernels::KernelChoice choice(ProductKernel usual, double blocked, double library) {
  return kernels::choose_host_kernel(usual, blocked, library);
}

std::string chosen(ProductKernel usual, double blocked, double library) {
  return choice(usual, blocked, library).kernel;
}

// The kernel of the process as it was, at the end of a test that sets another one.
class KeptKernel {
 public:
  ~KeptKernel() { kernels::set_host_kernel(before_); }

 private:
  kernels::HostKernel before_ = kernels::host_kernel();
};

}  // namespace

TEST_CASE("host kernel: the usual one gives way to one that is clearly faster, and to no other") {
  CHECK(chosen(kBlocked, 100.0, 210.0) == "blocked");
  CHECK(chosen(kBlocked, 100.0, 99.0) == "blocked");
  CHECK(chosen(kBlocked, 109.0, 100.0) == "blocked");
  CHECK(chosen(kBlocked, 111.0, 100.0) == "library");
  CHECK(chosen(kLibrary, 210.0, 100.0) == "library");
  CHECK(chosen(kLibrary, 100.0, 109.0) == "library");
  CHECK(chosen(kLibrary, 100.0, 111.0) == "blocked");
}

TEST_CASE("host kernel: what is no time decides nothing, and is not kept") {
  for (const double no_time : {kNan, kInf, -kInf, 0.0, -1.0}) {
    for (const auto usual : {kBlocked, kLibrary}) {
      for (const auto& choice : {choice(usual, no_time, 100.0), choice(usual, 100.0, no_time)}) {
        CHECK(choice.kernel == kernels::host_kernel_name(usual));
        CHECK(choice.microseconds == 0.0);
        CHECK(choice.fastest == 0.0);
        CHECK(choice.text == kMaker + "; not measured: the times that were measured say nothing");
      }
    }
  }
}

TEST_CASE("host kernel: the choice says by how much, and holds its time and the least") {
  const std::string library = kernels::library_name();
  CHECK(choice(kBlocked, 100.0, 214.6) ==
        kernels::KernelChoice{"blocked", "measured: 2.15 times as fast as " + library, 100.0, 100.0});
  CHECK(choice(kBlocked, 130.0, 100.0) ==
        kernels::KernelChoice{"library", "measured: 1.30 times as fast as own blocks", 100.0, 100.0});
  CHECK(choice(kBlocked, 105.0, 100.0) ==
        kernels::KernelChoice{
            "blocked", kMaker + "; measured: " + library + " is 1.05 times as fast, and is taken from 1.1 times on",
            105.0, 100.0});
  CHECK(choice(kLibrary, 100.0, 104.0).text ==
        kMaker + "; measured: own blocks are 1.04 times as fast, and are taken from 1.1 times on");
  CHECK(kernels::unmeasured_host_kernel(kLibrary, "why") ==
        kernels::KernelChoice{"library", kMaker + "; not measured: why", 0.0, 0.0});
}

TEST_CASE("host kernel: names") {
  for (const auto kernel : {kLibrary, kBlocked}) {
    CHECK(kernels::host_kernel_named(kernels::host_kernel_name(kernel)) == kernel);
  }
  CHECK_FALSE(kernels::host_kernel_named("").has_value());
  CHECK_FALSE(kernels::host_kernel_named("converted").has_value());
}

TEST_CASE("host kernel: of a layer so much is measured that it takes each thread some milliseconds") {
  const auto flops = [](const HostLayer& layer) {
    return 2.0 * static_cast<double>(layer.rows * layer.outputs * layer.inputs);
  };
  const HostLayer small{100, 64, 32, 400};
  CHECK((kernels::measured_part(small, 1) == small));
  const HostLayer huge{4050, 5120, 1280, 8100};
  for (const int threads : {1, 2, 16}) {
    const HostLayer part = kernels::measured_part(huge, threads);
    CHECK(part.rows == std::min<int64_t>(4050, 256 * threads));
    CHECK(part.inputs == 1280);
    CHECK(part.outputs % 64 == 0);
    CHECK(flops(part) <= 3e8 * threads);
    CHECK(flops(part) > 2e8 * threads);
    CHECK(part.rows_per_packing == 8100);
  }
  CHECK((kernels::measured_part(huge, 1000) == huge));
  CHECK(kernels::measured_part({4050, 100000, 1000000, 0}, 1).outputs == 64);
  CHECK(kernels::measured_part({4050, 10, 1000000, 0}, 1).outputs == 10);
}

TEST_CASE("host kernel: it computes what is large and fp32, or is converted to that") {
  const KeptKernel kept;
  const at::Tensor large = at::zeros({1024, 64}, at::kFloat);
  CHECK(kernels::is_large_product(1024, 1024, 1));
  CHECK_FALSE(kernels::is_large_product(1024, 1023, 1));
  for (const auto kernel : {kLibrary, kBlocked}) {
    if (kernel == kBlocked && !kernels::has_block_kernel()) {
      MESSAGE("skipped: no block kernel of oneDNN's here");
      continue;
    }
    kernels::set_host_kernel({kernel, "because of this"});
    CHECK(kernels::choose_product_kernel(large, 1024) == kernel);
    CHECK(kernels::choose_product_kernel(large.narrow(0, 0, 8), 1024) == kLibrary);
    CHECK(kernels::choose_product_kernel(large.to(at::kHalf), 1024) == ProductKernel::kConverted);
    CHECK(kernels::choose_product_kernel(large.to(at::kDouble), 1024) == kLibrary);
    for (const auto type : {at::kFloat, at::kHalf}) {
      const std::string text = kernels::product_kernel_text(at::kCPU, type);
      CHECK_MESSAGE(contains(text, "(because of this"), text);
      CHECK_MESSAGE(contains(text, "own blocks around oneDNN's fp32") == (kernel == kBlocked), text);
    }
    CHECK_FALSE(contains(kernels::product_kernel_text(at::kCPU, at::kDouble), "because of this"));
  }
  CHECK(kernels::multiplies_in_fp32(at::kFloat));
  CHECK(kernels::multiplies_in_fp32(at::kHalf));
  CHECK(kernels::multiplies_in_fp32(at::kBFloat16) == !kernels::has_bf16_block_kernel());
  CHECK_FALSE(kernels::multiplies_in_fp32(at::kDouble));
}

TEST_CASE("host kernel: where the model's products are too small for it, the library is said first") {
  const KeptKernel kept;
  kernels::set_host_kernel({kLibrary, "small", true});
  const std::string of_library = kernels::product_kernel_text(at::kCPU, at::kFloat);
  CHECK_MESSAGE(contains(of_library, ": the BLAS of LibTorch"), of_library);
  CHECK_MESSAGE(contains(of_library, "(small)"), of_library);
  if (kernels::has_block_kernel()) {
    kernels::set_host_kernel({kBlocked, "small", true});
    const std::string of_both = kernels::product_kernel_text(at::kCPU, at::kFloat);
    CHECK_MESSAGE(contains(of_both, ": the BLAS of LibTorch"), of_both);
    CHECK_MESSAGE(contains(of_both, "(small; larger ones: own blocks around oneDNN's fp32 kernel)"), of_both);
  }
}

TEST_CASE("host kernel: both give the same products but for rounding, and not the same bits") {
  if (!kernels::has_block_kernel()) {
    MESSAGE("skipped: no block kernel of oneDNN's here");
    return;
  }
  const KeptKernel kept;
  const at::Tensor x = normal_tensor({301, 200}, 1).to(at::kFloat), dy = normal_tensor({301, 150}, 2).to(at::kFloat);
  const at::Tensor matrix = normal_tensor({150, 200}, 3).to(at::kFloat);
  const double bound = 1.2e-7 * std::sqrt(301.0);
  std::vector<at::Tensor> forward;
  for (const auto kernel : {kLibrary, kBlocked}) {
    kernels::set_host_kernel({kernel, {}});
    kernels::PackedWeight weight(matrix);
    forward.push_back(kernels::linear_forward(x, weight, 1, {}));
    const at::Tensor gradient = at::zeros({150, 200}, at::kFloat);
    kernels::add_weight_gradient(gradient, dy, x, {});
    const at::Tensor wide = matrix.to(at::kDouble);
    CHECK(relative_error(forward.back(), at::mm(x.to(at::kDouble), wide.t())) <= bound);
    CHECK(relative_error(kernels::linear_backward_input(dy, weight, 1), at::mm(dy.to(at::kDouble), wide)) <= bound);
    CHECK(relative_error(gradient, at::mm(dy.to(at::kDouble).t(), x.to(at::kDouble))) <= bound);
  }
  CHECK_FALSE(forward[0].equal(forward[1]));
}

TEST_CASE("host kernel: the timer measures each kernel, and leaves that of the process as it was") {
  const KeptKernel kept;
  kernels::set_host_kernel({kLibrary, "as before"});
  const auto microseconds = kernels::host_kernel_timer({256, 96, 64, 256});
  CHECK(microseconds(kLibrary) > 0.0);
  CHECK((kernels::host_kernel() == kernels::HostKernel{kLibrary, "as before"}));
  if (kernels::has_block_kernel()) {
    CHECK(microseconds(kBlocked) > 0.0);
    CHECK((kernels::host_kernel() == kernels::HostKernel{kLibrary, "as before"}));
  }
}

TEST_CASE("host kernel: packing counts by the rows that share it, and an evaluation has no backward") {
  if (!kernels::has_block_kernel()) {
    MESSAGE("skipped: no block kernel of oneDNN's here");
    return;
  }
  const auto least = [](const HostLayer& layer) {
    const auto timer = kernels::host_kernel_timer(layer);
    double microseconds = kInf;
    for (int round = 0; round < 5; ++round) {
      microseconds = std::min(microseconds, timer(kBlocked));
    }
    return microseconds;
  };
  const double without = least({256, 512, 512, 0});
  CHECK(least({256, 512, 512, 1}) > 3.0 * without);  // as much packing as 256 rows would share with no others
  CHECK(least({256, 512, 512, 0, HostLayer::Passes::kForward}) < 0.7 * without);
}
