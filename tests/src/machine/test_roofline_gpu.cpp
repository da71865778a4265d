// The roof of a GPU's products: by events, below what the data sheet allows, and with what memory there is.
#include <ATen/ops/ones.h>
#include <doctest/doctest.h>

#include "src/base/device/gpu_survey.h"
#include "src/base/memory_tracker.h"
#include "src/kernels/gemm/device_products.h"
#include "src/machine/roofline.h"
#include "tests/support/gpu/own_gpu.h"

using namespace vit_hybrid;
using train::Precision;

TEST_SUITE_BEGIN("one rank");

TEST_CASE("gpu roof: fp16 is faster than fp32, and neither is faster than the data sheet's peak") {
  const MemoryTracker::Attachment attachment;
  const c10::Device device = testing::own_gpu();
  const std::string name = survey_gpus().gpus.at(static_cast<size_t>(device.index())).name;
  // The first product of a process takes the workspace of products, and keeps it.
  const at::Tensor small = at::ones({8, 8}, at::TensorOptions(at::kFloat).device(device));
  static_cast<void>(kernels::device_linear_forward(small, small, {}));
  const auto choices = kernels::kernel_table();
  const int64_t before = MemoryTracker::report().total_current;
  const auto fp32 = train::measure_matmul_roof(device, at::kFloat, 0.1);
  const auto fp16 = train::measure_matmul_roof(device, at::kHalf, 0.1);
  CHECK(MemoryTracker::report().total_current == before);
  CHECK(kernels::kernel_table() == choices);
  REQUIRE(fp32.has_value());
  REQUIRE(fp16.has_value());
  MESSAGE(name, ": fp32 ", *fp32 * 1e-12, ", fp16 ", *fp16 * 1e-12, " TFLOP/s");
  CHECK(*fp16 > *fp32);
  if (const double peak = train::gpu_peak_flops(name, Precision::kFp16); peak > 0.0) {
    CHECK(*fp16 < 1.05 * peak);
    CHECK(*fp32 < 1.05 * train::gpu_peak_flops(name, Precision::kFp32));
  }
}

TEST_SUITE_END();
