// The Error that a call throws, for tests of refusals.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::testing {

/// The Error that `function()` throws; one of class kInternal if it throws none.
template <class Function>
Error thrown_error(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorClass::kInternal, "nothing was thrown");
}

/// The same, and checks that all ranks got it. Collective over `group`.
template <class Function>
Error agreed_error(const comm::MpiGroup& group, Function&& function) {
  const Error caught = thrown_error(function);
  const std::string mine = str(caught.exit_code(), " ", caught.what());
  CHECK(group.broadcast(mine, 0) == mine);
  return caught;
}

}  // namespace vit_hybrid::testing
