// Resuming: which checkpoint a run goes on from, whether it fits, and the state that it brings back.
#pragma once

#include <optional>
#include <string>

#include "parallel/comm/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/train/checkpoint/checkpoint_reader.h"
#include "src/train/engine.h"
#include "src/train/run_config.h"

namespace vit_hybrid::train {

/// The folder of a run's checkpoints as the configuration says: checkpoint_dir, else <run_dir>/checkpoints; empty where
/// neither is given.
std::string configured_checkpoint_folder(const RunConfig& config);

/// The file that --resume names; nothing for `none`, and for `auto` where the run has no checkpoint yet (which is said
/// in one line). Error(kMissingInput) where there must be one. Collective over `world`.
std::optional<std::string> find_resume(const RunConfig& config, const comm::MpiGroup& world);

/// Error(kUsage), agreed, with a line for each thing in which the run differs from the checkpoint's and must not: model
/// options, optimizer (Adam and AdamW are one), seed, number of training samples, and their channels, grid, statistics
/// and class names where both sides know them. Collective over `world`.
void check_resumable(const CheckpointReader& checkpoint, const RunConfig& config, const TrainingData& data,
                     const comm::MpiGroup& world);

/// Fills parameters, optimizer state and steps, of any layout's checkpoint in any layout, cast to the engine's type.
/// Checksums are verified: Error(kBadData), agreed, names a tensor that is damaged. Collective over `world`, the ranks
/// of `mesh`.
void restore(const CheckpointReader& checkpoint, Engine& engine, mesh::DeviceMesh& mesh, const comm::MpiGroup& world);

}  // namespace vit_hybrid::train
