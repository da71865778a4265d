// The start record: what a run was, as the first line of metrics.jsonl.
#pragma once

#include "parallel/comm/mpi/mpi_session.h"
#include "src/config/run_config.h"
#include "src/report/metrics_log.h"

namespace vit_hybrid::train {

/// {"kind":"start", ...}: time, version, git commit and dirty flag, compiler, library versions, layout, model and its
/// number of parameters, machine with the `node_cores` that the job may use on its node. Of one rank.
Json start_record(const RunConfig& config, const comm::MpiSession& session, int node_cores);

}  // namespace vit_hybrid::train
