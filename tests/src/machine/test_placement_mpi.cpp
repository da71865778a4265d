// Placements that ranks find of themselves and tell each other.
#include <doctest/doctest.h>

#include <cstdlib>

#include "src/base/host.h"
#include "src/machine/placement.h"

namespace vit_hybrid::testing {

using train::RankPlacement;

TEST_CASE("placement: each rank learns where those of its node are, and rank 0 where all are") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const auto placements = train::set_threads(1 + world.rank() % 2, world);
  CHECK(placements.own.threads == 1 + world.rank() % 2);
  REQUIRE(placements.all.size() == static_cast<size_t>(world.rank() == 0 ? world.size() : 0));
  for (size_t rank = 0; rank < placements.all.size(); ++rank) {
    CHECK(placements.all[rank].threads == static_cast<int>(1 + rank % 2));
  }
  const auto ranks = train::gather_placements(world.rank() % 3, world.split_by_node());
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
  const comm::MpiGroup node = world.split_by_node();
  if (node.rank() == 0) {
    setenv("HWLOC_SYNTHETIC", "pack:3 core:7 pu:2", 1);
  }
  const auto ranks = train::gather_placements(1, node);
  unsetenv("HWLOC_SYNTHETIC");
  for (const RankPlacement& place : ranks) {
    CHECK(place.node_cores == 3 * 7);
  }
}

}  // namespace vit_hybrid::testing
