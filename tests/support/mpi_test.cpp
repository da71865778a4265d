// Rank and size of the world, for tests.
#include "tests/support/mpi_test.h"

#include <mpi.h>

namespace vit_hybrid::testing {

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int world_size() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

}  // namespace vit_hybrid::testing
