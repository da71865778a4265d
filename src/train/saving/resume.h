// Resuming: which checkpoint a run goes on from, whether it fits, and the state that it brings back.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/checkpoint/checkpoint_folder.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/config/run_config.h"
#include "src/train/engine.h"

namespace vit_hybrid::train {

/// The checkpoint that a run goes on from. --resume auto takes what `latest` names, and where that cannot be read or is
/// damaged the newest other one that is whole; --resume latest refuses then, and names that one; a path stands for
/// itself; --load takes what `latest` of its folder names, without one the newest, and where there is none says so and
/// begins anew.
class Resumption {
 public:
  /// Finds and opens it, looking for the run's own in the options' folder, else in that of `run_dir`: its structures
  /// are whole, its values are verified when they are read. Error(kMissingInput) where there must be one and is none,
  /// Error(kBadData) where none is whole. Collective over `world`, which outlives it.
  Resumption(const CheckpointConfig& options, const std::string& run_dir, const comm::MpiGroup& world);

  /// Null for a new training: without --resume, and with `auto` where the run has no checkpoint yet (which is said in
  /// one line).
  const CheckpointReader* checkpoint() const { return checkpoint_ ? &*checkpoint_ : nullptr; }
  /// Path of the checkpoint; empty without one.
  std::string path() const { return checkpoint_ ? checkpoint_->path() : std::string(); }
  /// When values turned out to be damaged, as `error` (agreed) says: opens the next one that is whole, and says so.
  /// Throws the error, with what the user can do, where none is to be tried. Collective over `world`.
  void fall_back(const Error& error);
  /// When the state is restored, in a folder that is this job's: sets aside the damaged checkpoints that were passed
  /// over, or are of later steps than the one that was taken, and lets `latest` name that where `auto` chose it.
  /// Collective over `world`.
  void settle() const;

 private:
  void find_candidates();
  std::string next_whole();
  [[noreturn]] void refuse(const Error& error) const;
  void open_next();
  std::vector<std::string> damaged_in(const CheckpointFolder& folder) const;

  CheckpointConfig options_;
  std::string folder_;  // of the run's own checkpoints; empty where it has none
  const comm::MpiGroup& world_;
  // Of rank 0:
  std::vector<std::string> candidates_;  // what is left to be tried, the best first
  std::vector<std::string> damaged_;     // what was passed over
  std::optional<Error> first_error_;     // why the first one was
  bool lacks_latest_ = false;
  // Of all ranks:
  std::optional<CheckpointReader> checkpoint_;
};

/// Error(kUsage), agreed, with a line for each thing in which the run differs from the checkpoint's and must not: model
/// options, optimizer (Adam and AdamW are one), seed, number of training samples, and their channels, grid, statistics
/// and class names where both sides know them. Collective over `world`.
void check_resumable(const CheckpointReader& checkpoint, const StepConfig& config, const TrainingData& data,
                     const comm::MpiGroup& world);

/// Fills parameters, optimizer state and steps, of any layout's checkpoint in any layout, cast to the engine's type.
/// Checksums are verified: Error(kBadData), agreed, names a tensor that is damaged. Collective over `world`, the ranks
/// of `mesh`.
void restore(const CheckpointReader& checkpoint, Engine& engine, mesh::DeviceMesh& mesh, const comm::MpiGroup& world);

}  // namespace vit_hybrid::train
