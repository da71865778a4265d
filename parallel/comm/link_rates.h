// Link rates: how fast bytes go from each node to each other one, by sending some.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"

namespace vit_hybrid::comm {

/// Bytes a second, [from][to] by number of the node; 0 on the diagonal.
using LinkRates = std::vector<std::vector<double>>;

/// The partner of `node` in `round`, 0 to n - 2, of a tournament of n players, an even number: in each round all have
/// one, and in all rounds every other one (the circle method).
int partner(int node, int round, int players);

/// The first ranks of two nodes send each other `bytes` over MPI, in one direction after the other, pairs of different
/// nodes at the same time; the fastest of three messages counts. Takes as many rounds as there are other nodes. The
/// table is on rank 0, and empty elsewhere and where there is one node. `nodes`: how many ranks each has, in their
/// order. Collective over `world`.
LinkRates measure_link_rates(const MpiGroup& world, const std::vector<int>& nodes, int64_t bytes);

}  // namespace vit_hybrid::comm
