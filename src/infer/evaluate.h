// evaluate(): the figures of a checkpoint's model on a data set.
#pragma once

#include "parallel/comm/mpi/mpi_group.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/config/run_config.h"
#include "src/infer/model_use.h"
#include "src/report/scores.h"
#include "src/train/predictions.h"

namespace vit_hybrid::train {

/// Evaluates on config.data.valid_data, every sample once, prints a table (of a classifier also what is confused) and,
/// where use.out is given, writes it as JSON; and the files that `predictions` names. Images without labels have
/// predictions alone: no figures but their number. `config` as from config_for_use(). The figures, on all ranks.
/// Collective over `world`, errors agreed.
Evaluation evaluate(const RunConfig& config, const ModelUse& use, const CheckpointReader& checkpoint,
                    const comm::MpiGroup& world, const PredictionOptions& predictions = {});

/// refuse_input() of all files that are read: the checkpoint, those of the data and of their statistics. An HDF5 file
/// or Zarr store among those of a folder of data is refused too, though it is new: it would be read with them; so is
/// what lies in a store of the data; and refuse_run_file(). For one rank.
void refuse_inputs(const std::string& path, const std::string& option, const DataConfig& data,
                   const std::string& checkpoint);

/// What a command is to write: refuse_inputs(), refuse_existing(), and Error(kCannotCreate) where its folder is not
/// there or nothing can be written into it; before the work, whose results would be lost. For one rank.
void check_output(const std::string& path, const std::string& option, bool overwrite, const DataConfig& data,
                  const std::string& checkpoint);

}  // namespace vit_hybrid::train
