// Times and memory of a GPU: the device's own, not those of the host that asked for the work.
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <doctest/doctest.h>

#include "src/base/device/gpu_survey.h"
#include "src/base/timer.h"
#include "tests/support/gpu/own_gpu.h"

using namespace vit_hybrid;

TEST_SUITE_BEGIN("one rank");

TEST_CASE("gpu phase clock: a phase lasts as long as the device is at work") {
  const at::Tensor ones = at::ones({2048, 2048}, at::TensorOptions(at::kFloat).device(testing::own_gpu()));
  at::Tensor product = at::mm(ones, ones);
  CHECK(product[0][0].item<float>() == 2048.0f);  // all work so far is done
  PhaseClock clock(c10::DeviceType::CUDA);
  for (int round = 0; round < 2; ++round) {  // the second one uses the events of the first
    double whole = 0.0, inside = 0.0;
    const Timer timer;
    {
      const auto outer = clock.measure(whole);
      const auto inner = clock.measure(inside);
      for (int i = 0; i < 200; ++i) {
        product = at::mm(ones, ones);
      }
    }
    CHECK(whole == 0.0);  // not known yet
    clock.collect();
    const double waited = timer.seconds();
    CHECK(inside <= whole);
    CHECK(whole <= waited);
    CHECK(whole >= 0.5 * waited);  // the host only waited
  }
}

TEST_CASE("gpu memory: the allocator's peak and the device's address") {
  const c10::Device device = testing::own_gpu();
  const at::Tensor large = at::ones({64, 1 << 20}, at::TensorOptions(at::kFloat).device(device));
  CHECK(device_peak_bytes(device) >= static_cast<int64_t>(large.nbytes()));
  CHECK(device_peak_bytes(c10::Device(at::kCPU)) == 0);
  CHECK(device_total_bytes(device) > device_peak_bytes(device));
  CHECK(device_total_bytes(c10::Device(at::kCPU)) == 0);
  CHECK(device_pci_address(device).find(':') != std::string::npos);
  CHECK(device_pci_address(c10::Device(at::kCPU)).empty());
}

TEST_SUITE_END();
