// GpuMeter on the library of tests/support/fake_nvml.c, where that is loaded (CTest's entry unit_tests_nvml).
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <string>

#include "src/base/device/energy_meter.h"
#include "tests/support/contains.h"

using namespace vit_hybrid;

TEST_CASE(
    "gpu meter: how many there are, energy since it began, utilisation and memory, as the driver's library tells "
    "them") {
  if (dlsym(RTLD_DEFAULT, "nvmlInit_v2") == nullptr) {
    MESSAGE("[skipped] no library of the driver is loaded");
    return;
  }
  CHECK(GpuMeter::num_on_machine() == 4);
  GpuMeter meter("0000:01:00.0");
  CHECK(meter.read().joules.value() == 2.5);
  CHECK(meter.read().joules.value() == 5.0);
  const GpuUsage usage = meter.usage();
  CHECK(usage.utilisation.value() == 93.0);
  CHECK(usage.memory_utilisation.value() == 41.0);
  CHECK(usage.memory_bytes.value() == int64_t{30} << 30);
  GpuMeter other("0000:02:00.0");
  CHECK_FALSE(other.read().joules);
  CHECK(testing::contains(other.read().missing, "NVML does not know the GPU 0000:02:00.0"));
  CHECK_FALSE(other.usage().utilisation);
}
