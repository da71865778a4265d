// What multi-rank tests need of MPI: rank and size of the world, and the reason to skip a whole program.
#pragma once

#include <string>

namespace vit_hybrid::testing {

/// Rank of this process in MPI_COMM_WORLD.
int world_rank();

/// Number of processes in MPI_COMM_WORLD.
int world_size();

/// Why this test program cannot run here ("no GPU"), or an empty text; asked once, before the tests. Two files define
/// it, and each program is linked with one of them.
std::string reason_to_skip();

}  // namespace vit_hybrid::testing
