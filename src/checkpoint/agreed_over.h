// Errors agreed over a Communicator, where there is no group of plain MPI: one rank's error becomes that of all.
#pragma once

#include <c10/core/Device.h>

#include <optional>

#include "parallel/comm/communicator.h"
#include "parallel/comm/failure.h"
#include "src/base/error.h"

namespace vit_hybrid::train {

/// Returns if no rank has an error; else all ranks throw a comm::AgreedError, that of the lowest rank. `device` is the
/// one whose tensors `group` moves. Collective over `group`.
void agree_over(comm::Communicator& group, c10::Device device, const std::optional<Error>& mine);

/// Runs `function()` on every rank; if it throws on one, all throw. Collective over `group`, which `function` must not
/// use.
template <class Function>
void agreed_over(comm::Communicator& group, c10::Device device, Function&& function) {
  std::optional<Error> error;
  try {
    function();
  } catch (const std::exception& exception) {
    error = comm::as_error(exception);
  }
  agree_over(group, device, error);
}

}  // namespace vit_hybrid::train
