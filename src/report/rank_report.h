// gather_rank_reports(): memory by class and time by phase of every rank, for summary.json.
#pragma once

#include "parallel/comm/communicator.h"
#include "src/report/metrics_log.h"
#include "src/report/run_log.h"

namespace vit_hybrid::train {

/// An array with one object a rank: its seconds by phase, its tensor bytes by class (each class's peak, what each held
/// when the total was highest, and that total), the most memory of its process, and what its GPU's allocator held. On
/// every rank. Collective over `host_world`.
Json gather_rank_reports(const StepSeconds& seconds, c10::Device device, comm::Communicator& host_world);

}  // namespace vit_hybrid::train
