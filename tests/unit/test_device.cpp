// The device of a rank, and where its batches lie on the host.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <doctest/doctest.h>

#include "src/base/error.h"
#include "src/train/device.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;
using data::HostMemory;

TEST_CASE("device: batches are page-locked where a GPU takes them") {
  const c10::Device cpu(c10::kCPU);
  const c10::Device gpu(c10::kCUDA, 0);
  CHECK((batch_memory(PinMemory::kAuto, cpu) == HostMemory::kPageable));
  CHECK((batch_memory(PinMemory::kOff, cpu) == HostMemory::kPageable));
  CHECK((batch_memory(PinMemory::kAuto, gpu) == HostMemory::kPinned));
  CHECK((batch_memory(PinMemory::kOn, gpu) == HostMemory::kPinned));
  CHECK((batch_memory(PinMemory::kOff, gpu) == HostMemory::kPageable));
}

TEST_CASE("device: page-locked batches without a GPU are refused when the device is chosen") {
  RunConfig config;
  config.device = DeviceChoice::kCpu;
  CHECK(choose_device(config, {}).is_cpu());
  config.data.pin_memory = PinMemory::kOn;
  const Error refused = testing::thrown_error([&] { choose_device(config, {}); });
  CHECK(refused.error_class() == ErrorClass::kUsage);
  CHECK(refused.message() ==
        "--pin-memory on: the device is cpu, and page-locked batches are for copies to a GPU, of which there are none");
  CHECK(refused.hint() == "give --pin-memory auto, which page-locks them where there is a GPU, or off");
  config.device = DeviceChoice::kAuto;
  if (!at::hasCUDA()) {
    CHECK_THROWS_AS(choose_device(config, {}), Error);
  }
}

TEST_CASE("device: a tensor is converted on its way") {
  const at::Tensor x = at::full({3}, 1.5, at::kFloat);
  CHECK(at::equal(to_device(x, c10::kCPU, at::kDouble), at::full({3}, 1.5, at::kDouble)));
  CHECK(to_device(x, c10::kCPU, at::kFloat).is_same(x));
}
