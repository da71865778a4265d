// train(): a whole training run from a configuration.
#pragma once

#include "parallel/comm/mpi/mpi_session.h"
#include "src/config/run_config.h"

namespace vit_hybrid::train {

/// Trains as `config` (resolved and checked, the same on all ranks) says: opens the data, makes the run folder, trains,
/// and writes summary.json. Returns the exit code: 0, or 75 (come again) after an interruption. Collective over the
/// world.
int train(const RunConfig& config, comm::MpiSession& session);

}  // namespace vit_hybrid::train
