// The choice of a device by all ranks, and texts of all ranks.
#include <doctest/doctest.h>

#include "src/machine/device.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid::testing {

namespace {

train::RunConfig config_for(train::DeviceChoice device) {
  train::RunConfig config;
  config.device = device;
  return config;
}

}  // namespace

TEST_CASE("device: texts of all ranks, of different lengths") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const auto text_of = [](int rank) {
    return std::string(static_cast<size_t>(rank % 3 * 5), static_cast<char>('a' + rank));
  };
  const auto texts = world.all_gather(text_of(world.rank()));
  REQUIRE(texts.size() == static_cast<size_t>(world.size()));
  for (int rank = 0; rank < world.size(); ++rank) {
    CHECK(texts[static_cast<size_t>(rank)] == text_of(rank));
  }
}

TEST_CASE("device: all ranks choose, or refuse, alike") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  CHECK(train::choose_device(config_for(train::DeviceChoice::kCpu), world).is_cpu());
  // This program has no CUDA, whatever the machine has.
  CHECK(train::choose_device(config_for(train::DeviceChoice::kAuto), world).is_cpu());
  const Error no_cuda =
      agreed_error(world, [&] { train::choose_device(config_for(train::DeviceChoice::kCuda), world); });
  CHECK(no_cuda.message() == "--device cuda: this program was built without CUDA");
}

TEST_CASE("device: what the configuration wants of a device that is the CPU") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  train::RunConfig pinned = config_for(train::DeviceChoice::kAuto);
  pinned.data.pin_memory = train::PinMemory::kOn;
  const Error refused = agreed_error(world, [&] { train::choose_device(pinned, world); });
  CHECK(refused.error_class() == ErrorClass::kUsage);
  CHECK(refused.message() ==
        "--pin-memory on: the device is cpu, and page-locked batches are for copies to a GPU, of which there are none");
  CHECK(refused.hint() == "give --pin-memory auto, which page-locks them where there is a GPU, or off");
  train::RunConfig tf32 = config_for(train::DeviceChoice::kAuto);
  tf32.precision.kind = train::Precision::kTf32;
  CHECK(train::choose_device(tf32, world).is_cpu());
}

}  // namespace vit_hybrid::testing
