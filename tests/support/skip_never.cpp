// reason_to_skip() of programs that run on every machine.
#include "tests/support/mpi_test.h"

namespace vit_hybrid::testing {

std::string reason_to_skip() {
  return {};
}

}  // namespace vit_hybrid::testing
