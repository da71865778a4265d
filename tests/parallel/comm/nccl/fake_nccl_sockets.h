// A fake of NCCL that connects the processes of a machine and moves their data, on streams of the fake device.
//
// By sockets, not over MPI: the product lets the main thread alone call MPI, and a receive of MPI neither ends when it
// is aborted nor tells that its peer has gone. A socket does both, as NCCL's own transport does. Sums are made as those
// of the host back ends are, so that bits can be compared.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace vit_hybrid::testing {

/// What is known of a communicator that was split off.
struct FakeSplit {
  int most_blocks;        ///< that it was allowed
  size_t most_bytes = 0;  ///< of a call, those that one rank gives or gets, whichever are more
};

/// What a test wants of it.
struct FakeNcclSockets {
  std::function<int(int color)> other_color;       ///< planted: what a split takes in place of its color
  std::vector<std::shared_ptr<FakeSplit>> splits;  ///< in their order, also those that this rank is in none of
};

/// The one of this process.
FakeNcclSockets& fake_nccl_sockets();

}  // namespace vit_hybrid::testing
