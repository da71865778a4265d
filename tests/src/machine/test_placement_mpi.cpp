// Placements that ranks find of themselves and tell each other.
#include <doctest/doctest.h>

#include <cstdlib>

#include "src/base/host.h"
#include "src/machine/placement.h"

namespace vit_hybrid::testing {

using train::RankPlacement;

TEST_CASE("placement: each rank learns where all of them are") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const auto ranks = train::gather_placements(world.rank() % 3, world);
  REQUIRE(ranks.size() == static_cast<size_t>(world.size()));
  const RankPlacement& own = ranks[static_cast<size_t>(world.rank())];
  const RankPlacement expected = train::place_rank(train::load_topology(), allowed_processors(), {}, 1);
  CHECK(own.cores == expected.cores);
  CHECK(own.node_cores == expected.node_cores);
  CHECK(own.num_sockets == expected.num_sockets);
  CHECK(own.near_memories == expected.near_memories);
  CHECK(!own.memories.empty());
  for (int rank = 0; rank < world.size(); ++rank) {
    const RankPlacement& place = ranks[static_cast<size_t>(rank)];
    CHECK(place.threads == rank % 3);
    CHECK(place.is_automatic == (rank % 3 == 0));
    CHECK(!place.cores.empty());
  }
}

TEST_CASE("placement: the lowest rank of a node reads its topology for all of them") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  if (world.split_by_node().rank() == 0) {
    setenv("HWLOC_SYNTHETIC", "pack:3 core:7 pu:2", 1);
  }
  const auto ranks = train::gather_placements(1, world);
  unsetenv("HWLOC_SYNTHETIC");
  for (const RankPlacement& place : ranks) {
    CHECK(place.node_cores == 3 * 7);
  }
}

}  // namespace vit_hybrid::testing
