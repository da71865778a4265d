// Control messages of MpiGroup: what rank 0 alone gets, and what it gives each.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"

using vit_hybrid::comm::MpiGroup;

TEST_CASE("MpiGroup: gather() gives rank 0 the texts of all ranks, of any length, and the others nothing") {
  const MpiGroup world = MpiGroup::world();
  const auto text_of = [](int rank) {
    return std::string(static_cast<size_t>(rank % 3) * 1000, 'a') + std::to_string(rank);
  };
  for (const bool is_empty : {false, true}) {
    const std::vector<std::string> texts = world.gather(is_empty ? std::string() : text_of(world.rank()));
    REQUIRE(texts.size() == static_cast<size_t>(world.rank() == 0 ? world.size() : 0));
    for (size_t rank = 0; rank < texts.size(); ++rank) {
      CHECK(texts[rank] == (is_empty ? std::string() : text_of(static_cast<int>(rank))));
    }
  }
}

TEST_CASE("MpiGroup: scatter() gives each rank its own of rank 0's values") {
  const MpiGroup world = MpiGroup::world();
  std::vector<int64_t> values;
  for (int rank = 0; world.rank() == 0 && rank < world.size(); ++rank) {
    values.push_back(int64_t{1} << (40 + rank));
  }
  CHECK(world.scatter(values) == int64_t{1} << (40 + world.rank()));
}

TEST_CASE("MpiGroup: the largest of each element") {
  const MpiGroup world = MpiGroup::world();
  std::vector<double> values = {0.5 * world.rank(), -1.5 * world.rank(), 7.25};
  world.max(values);
  CHECK(values == std::vector<double>{0.5 * (world.size() - 1), 0.0, 7.25});
}

TEST_CASE("MpiGroup: a process alone needs nobody") {
  if (MpiGroup::world().rank() == 0) {
    const MpiGroup self = MpiGroup::alone();
    CHECK(self.size() == 1);
    CHECK(self.sum(5) == 5);
    CHECK(self.gather("x") == std::vector<std::string>{"x"});
  }
  MpiGroup::world().barrier();
}
