// WatchLink: every rank plays a node of its own, and they ask each other over the loopback.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/comm/node_board.h"
#include "parallel/comm/standing.h"
#include "parallel/comm/watch_link.h"
#include "tests/support/contains.h"

using namespace vit_hybrid;
using comm::Standing;
using testing::contains;

namespace {

std::vector<Standing> waiting_in(int rank, uint64_t group, uint64_t turn) {
  Standing s;
  s.rank = rank;
  s.host = "n" + std::to_string(rank);
  s.state = Standing::State::kWaiting;
  s.still = 1.5;
  s.group = group;
  s.turn = turn;
  s.turns = {{group, turn}};
  return {s};
}

}  // namespace

TEST_CASE("watch link: nodes tell how they stand, and one that has come through MPI_Finalize has ended") {
  const auto world = comm::MpiGroup::world();
  if (world.size() < 2) {
    MESSAGE("needs 2 ranks");
    return;
  }
  constexpr uint64_t kGroup = 77;
  const int last = world.size() - 1;
  auto link = std::make_unique<comm::WatchLink>(
      world, world.rank(), [&] { return waiting_in(world.rank(), kGroup, 5); }, std::vector<std::string>{"127.0.0.1"});
  const auto ask = [&](uint64_t group, uint64_t turn) {
    comm::JobStandings job;
    if (world.rank() == 0) job = link->ask(waiting_in(0, group, turn));
    world.barrier();
    return job;
  };
  const comm::JobStandings all = ask(kGroup, 5);
  if (world.rank() == 0) {
    CHECK(all.remark == "");
    REQUIRE(static_cast<int>(all.standings.size()) == world.size());
    for (int rank = 0; rank < world.size(); ++rank)
      CHECK((all.standings[static_cast<size_t>(rank)] == waiting_in(rank, kGroup, 5).front()));
  }
  if (world.rank() == last) link.reset();
  world.barrier();
  const comm::JobStandings while_training = ask(kGroup, 5);
  const comm::JobStandings at_end = ask(comm::kLaunchGroup, comm::kFinalizeTurn);
  if (world.rank() == 0) {
    CHECK(static_cast<int>(while_training.standings.size()) == last);
    CHECK_MESSAGE(contains(while_training.remark, "did not answer over TCP: "), while_training.remark);
    CHECK(at_end.remark == "");
    REQUIRE(static_cast<int>(at_end.standings.size()) == world.size());
    CHECK(at_end.standings.back().rank == last);
    CHECK((at_end.standings.back().state == Standing::State::kEnded));
  }
}
