// Rates of messages as they are measured between the ranks of a node.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/machine/calibration.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;
using namespace vit_hybrid::testing;

TEST_CASE("calibration: messages between ranks have a rate for each group and size, the same on every rank") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  if (world.size() > 2) {
    return;  // more take long where they share cores
  }
  const RateTables tables = calibrate_messages(world);
  if (world.size() == 1) {
    CHECK(tables.empty());
    return;
  }
  REQUIRE(tables.size() == message_kinds().size());
  for (const WorkKind& kind : message_kinds()) {
    const RateTable& table = tables.at(kind.name);
    REQUIRE(table.axes.size() == kind.axes.size());
    size_t points = 1;
    for (size_t i = 0; i < kind.axes.size(); ++i) {
      CHECK(table.axes[i].name == kind.axes[i]);
      points *= table.axes[i].points.size();
    }
    CHECK(table.rates.size() == points);
    CHECK(std::all_of(table.rates.begin(), table.rates.end(),
                      [](double rate) { return std::isfinite(rate) && rate > 1e3 && rate < 1e13; }));
    std::vector<double> sums = table.rates;
    world.sum(sums);
    for (size_t i = 0; i < sums.size(); ++i) {
      CHECK(sums[i] == doctest::Approx(2.0 * table.rates[i]));
    }
  }
  const NodeNetwork nodes = calibrate_nodes(world);
  CHECK((nodes.bytes_per_s == 0.0) == (world.node_sizes().size() == 1));
}

TEST_CASE("calibration: reading has a rate, the same on every rank, and leaves nothing behind") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  if (world.size() > 2) {
    return;  // 16 MiB and more a rank
  }
  const ScratchFolder scratch(world);
  const double rate = calibrate_reading(scratch.path(), world);
  CHECK(rate > 1e5);
  CHECK(rate < 1e12);
  std::vector<double> sum = {rate};
  world.sum(sum);
  CHECK(sum[0] == doctest::Approx(world.size() * rate));
  CHECK(std::filesystem::is_empty(scratch.path()));
  const Error error = thrown_error([&] { calibrate_reading(scratch.file("none"), world); });
  CHECK(error.error_class() == ErrorClass::kCannotCreate);
}

TEST_CASE("calibration: blocks of every type have a time, the same on every rank") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  if (world.size() > 2) {
    return;
  }
  model::VitOptions model;
  model.image_height = model.image_width = 32;
  model.patch_height = model.patch_width = 8;
  model.embed_dim = 64;
  model.num_heads = 2;
  model.mlp_hidden = 128;
  model.depth = 2;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    CAPTURE(type);
    const double seconds = calibrate_blocks(model, type, world);
    CHECK(seconds > 0.0);
    std::vector<double> sum = {seconds};
    world.sum(sum);
    CHECK(sum[0] == doctest::Approx(world.size() * seconds));
  }
}
