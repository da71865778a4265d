// Clocks of ranks that are measured: on one machine there is one.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/trace.h"
#include "src/report/step_trace.h"

namespace vit_hybrid::testing {

TEST_CASE("clock alignment: ranks of one machine have one clock, as well as is said") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  for (int round = 0; round < 3; ++round) {
    const int64_t before = trace::now();
    const train::ClockOffset offset = train::measure_clock_offset(world);
    CHECK(offset.at >= before);
    CHECK(offset.at <= trace::now());
    CHECK(offset.offset == 0);
    CHECK(offset.error == 0);
  }
}

TEST_CASE("mpi group: messages between two ranks, in the order in which they are sent") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const std::string text(100'000, 'x');
  if (world.rank() == 0) {
    for (int rank = world.size() - 1; rank > 0; --rank) {
      std::string came(text.size(), ' ');
      world.receive(came.data(), static_cast<int64_t>(came.size()), rank);
      CHECK(came == text);
      int64_t number = 0;
      world.receive(&number, sizeof number, rank);
      CHECK(number == rank);
      world.receive(nullptr, 0, rank);
    }
  } else {
    const int64_t number = world.rank();
    world.send(text.data(), static_cast<int64_t>(text.size()), 0);
    world.send(&number, sizeof number, 0);
    world.send(nullptr, 0, 0);
  }
}

}  // namespace vit_hybrid::testing
