// reason_to_skip() of programs that need a GPU.
#include <ATen/Context.h>

#include "tests/support/mpi_test.h"

namespace vit_hybrid::testing {

std::string reason_to_skip() {
  return at::hasCUDA() ? std::string() : "no CUDA device on this machine";
}

}  // namespace vit_hybrid::testing
