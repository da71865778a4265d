// What ranks agree on between two steps, each with another report.
#include <doctest/doctest.h>

#include <csignal>

#include "parallel/mesh/device_mesh.h"
#include "src/train/trainer.h"

using namespace vit_hybrid;

namespace {

train::BorderAgreement agreed(const train::BorderReport& own) {
  const comm::MpiGroup world = comm::MpiGroup::world();
  mesh::DeviceMesh mesh(mesh::ParallelDims(world.size(), 1, 1), world, c10::Device(c10::kCPU));
  return train::agree_at_border(own, mesh.host_world());
}

}  // namespace

TEST_CASE("step border: losses are added, waits averaged, and each has its most") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const int last = world.size() - 1;
  train::BorderReport own;
  own.loss = 1.0 + world.rank();
  own.data_wait = 0.5 * world.rank();
  const train::BorderAgreement all = agreed(own);
  CHECK(all.loss == (last + 1) * (last + 2) / 2.0);
  CHECK(all.mean_data_wait == doctest::Approx(0.25 * last));
  CHECK(all.most_data_wait == 0.5 * last);
  CHECK(all.signal == 0);
  CHECK_FALSE(all.time_is_up);
  CHECK_FALSE(all.all_have_written);
}

TEST_CASE("step border: one rank's signal or end of time is everybody's, a checkpoint is written when all have") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const bool is_last = world.rank() == world.size() - 1;
  train::BorderReport own;
  own.signal = is_last ? SIGUSR1 : 0;
  own.time_is_up = is_last;
  own.has_written = is_last;
  const train::BorderAgreement one = agreed(own);
  CHECK(one.signal == SIGUSR1);
  CHECK(one.time_is_up);
  CHECK(one.all_have_written == (world.size() == 1));
  own.has_written = true;
  CHECK(agreed(own).all_have_written);
}
