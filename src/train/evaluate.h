// evaluate(): the figures of a checkpoint's model on a data set.
#pragma once

#include "parallel/comm/mpi_group.h"
#include "src/train/checkpoint/checkpoint_reader.h"
#include "src/train/evaluation.h"
#include "src/train/model_use.h"
#include "src/train/run_config.h"

namespace vit_hybrid::train {

/// Evaluates on config.data.valid_data, every sample once, prints a table and, where use.out is given, writes it as
/// JSON. `config` as from config_for_use(). The figures, on all ranks. Collective over `world`, errors agreed.
Evaluation evaluate(const RunConfig& config, const ModelUse& use, const CheckpointReader& checkpoint,
                    const comm::MpiGroup& world);

/// Refuses, with Error(kCannotCreate), a file that is there, unless it may be overwritten. For one rank.
void refuse_existing(const std::string& path, bool overwrite);

}  // namespace vit_hybrid::train
