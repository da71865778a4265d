// What ranks agree on between two steps, each with another report.
#include <doctest/doctest.h>

#include <csignal>
#include <optional>

#include "parallel/mesh/device_mesh.h"
#include "src/train/trainer.h"

using namespace vit_hybrid;

namespace {

train::BorderAgreement agreed(const train::BorderReport& own, const std::optional<mesh::ParallelDims>& dims = {}) {
  const comm::MpiGroup world = comm::MpiGroup::world();
  mesh::DeviceMesh mesh(dims.value_or(mesh::ParallelDims(world.size(), 1, 1)), world, c10::Device(c10::kCPU));
  return train::agree_at_border(own, mesh);
}

void check_peers(const comm::MpiGroup& world, const mesh::ParallelDims& dims) {
  train::BorderReport own;
  own.seconds = world.rank();
  own.samples = 1.0 + world.rank();
  own.has_turned = world.rank() == world.size() - 1;
  for (size_t part = 0; part < own.work.size(); ++part) {
    own.work[part] = 100.0 * static_cast<double>(part) + world.rank();
  }
  const train::BorderAgreement all = agreed(own, dims);
  CHECK(all.mean_seconds == doctest::Approx(0.5 * (world.size() - 1)));
  CHECK(all.anybody_has_turned);
  double ranks = 0.0;
  double peers = 0.0;
  const mesh::Coordinate at = dims.coordinate(world.rank());
  for (int rank = 0; rank < world.size(); ++rank) {
    mesh::Coordinate other = dims.coordinate(rank);
    mesh::on(other, mesh::Axis::kData) = mesh::on(at, mesh::Axis::kData);
    if (other == at) {
      ranks += rank;
      peers += 1.0;
    }
  }
  CHECK(all.peers_samples == peers + ranks);
  for (size_t part = 0; part < own.work.size(); ++part) {
    CHECK(all.peers_work[part] == 100.0 * static_cast<double>(part) * peers + ranks);
  }
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

TEST_CASE(
    "step border: work is added over the ranks with the same part of the model, and one that turned is told to all") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  for (int tp = 1; tp <= world.size(); tp *= 2) {
    for (int pp = 1; tp * pp <= world.size(); pp *= 2) {
      const mesh::ParallelDims dims(world.size() / tp / pp, tp, pp);
      if (dims.size() != world.size()) {
        continue;
      }
      CAPTURE(dims.text());
      check_peers(world, dims);
    }
  }
}
