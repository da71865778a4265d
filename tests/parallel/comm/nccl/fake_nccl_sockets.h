// A fake of NCCL that connects the processes of a machine and moves their data, on streams of the fake device.
//
// By sockets, not over MPI: the product lets the main thread alone call MPI, and a receive of MPI neither ends when it
// is aborted nor tells that its peer has gone. A socket does both, as NCCL's own transport does. Sums are made as those
// of the host back ends are, so that bits can be compared.
#pragma once

#include <functional>
#include <vector>

namespace vit_hybrid::testing {

/// What a test wants of it.
struct FakeNcclSockets {
  std::function<int(int color)> other_color;  ///< planted: what a split takes in place of its color
  std::vector<int> most_blocks;               ///< that each split was allowed, in their order
};

/// The one of this process.
FakeNcclSockets& fake_nccl_sockets();

}  // namespace vit_hybrid::testing
