// The choice of a device by all ranks, and texts of all ranks.
#include <ATen/Parallel.h>
#include <doctest/doctest.h>

#include "src/machine/device.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid::testing {

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
  const auto choose = [&](train::DeviceChoice choice) {
    return train::choose_device(choice, 1, train::Precision::kTf32, world);
  };
  CHECK(choose(train::DeviceChoice::kCpu).is_cpu());
  // This program has no CUDA, whatever the machine has.
  CHECK(choose(train::DeviceChoice::kAuto).is_cpu());
  const Error no_cuda = agreed_error(world, [&] { choose(train::DeviceChoice::kCuda); });
  CHECK(no_cuda.message() == "--device cuda: this program was built without CUDA");
}

TEST_CASE("device: what the configuration wants of a device that is the CPU") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  train::RunConfig pinned;
  pinned.parallel.threads = at::get_num_threads();
  pinned.data.pin_memory = train::PinMemory::kOn;
  const auto set_up = [&] { return train::set_up_machine(pinned, pinned.data, train::ModelPurpose::kTraining, world); };
  const Error refused = agreed_error(world, set_up);
  CHECK(refused.error_class() == ErrorClass::kUsage);
  CHECK(refused.message() ==
        "--pin-memory on: the device is cpu, and page-locked batches are for copies to a GPU, of which there are none");
  CHECK(refused.hint() == "give --pin-memory auto, which page-locks them where there is a GPU, or off");
  pinned.data.pin_memory = train::PinMemory::kAuto;
  CHECK(set_up().device.is_cpu());
}

}  // namespace vit_hybrid::testing
