// Checkpointer: when a run saves, under which names, and what it keeps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "data/reading/posix_file.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/base/timer.h"
#include "src/checkpoint/checkpoint_folder.h"
#include "src/checkpoint/format.h"
#include "src/config/run_config.h"
#include "src/report/evaluation.h"
#include "src/report/run_log.h"
#include "src/train/engine.h"
#include "src/train/saving/background_save.h"

namespace vit_hybrid::train {

/// Where a training stands at a step border.
struct TrainingPosition {
  int64_t step = 0;              ///< iterations done
  int64_t epoch = 0;             ///< epochs completed
  int64_t samples_of_epoch = 0;  ///< seen of the epoch under way
};

/// Saves the state of one run into its folder. A checkpoint has its name when it is complete, then `latest` moves to
/// it, then `best` where its figure is the best so far, and only then old ones go: whenever the program dies, `latest`
/// is a complete checkpoint.
class Checkpointer {
 public:
  /// All arguments but `folder` outlive it.
  Checkpointer(const RunConfig& config, const comm::MpiGroup& world, mesh::DeviceMesh& mesh, Engine& engine,
               RunLog& log, std::string folder, TrainingData data);
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  /// False with --keep-checkpoints none: nothing is ever saved.
  bool is_on() const { return options_.keep > 0; }
  /// Before step 1: makes the folder, and sees that all ranks can write to it, that two checkpoints have space in it
  /// and that those in it are of this run, which goes on from the file `resumed` or, where that is empty, begins. With
  /// --checkpoint-async it also takes the memory for a copy of the state. Collective over the world, errors agreed.
  void prepare(const std::string& resumed);
  /// Whether --checkpoint-every asks for one after `step` steps.
  bool is_due(int64_t step) const { return is_on() && options_.every > 0 && step % options_.every == 0; }
  /// Whether the figures beat those of all checkpoints so far, in a run that saves every now and then.
  bool wants_best(const Evaluation& figures) const { return is_on() && options_.every > 0 && beats_best(figures); }
  /// `figures`, where there are any, are those of these very weights. With --checkpoint-async, after prepare(), it
  /// returns when the state was copied. Collective over the world, errors agreed. Nothing where it is off.
  void save(const TrainingPosition& position, const std::optional<Evaluation>& figures);
  /// Whether a save is under way in the background; the same on all ranks.
  bool is_saving() const { return background_ != nullptr; }
  /// Whether this rank has written its part of it.
  bool has_written() const { return is_saving() && background_->is_done(); }
  /// Ends a save that is under way: waits for it, and moves the names. Collective over the world, errors agreed.
  /// Nothing where none is.
  void complete();
  /// What the next save may take: the longest so far, before the first one a guess from its size.
  double expected_seconds() const;

 private:
  // A save that has begun.
  struct Saving {
    std::string path;
    TrainingPosition position;
    Timer since_start;
    bool is_best = false;
    double stall = 0.0;  // seconds that training waited for it
  };

  /// Moves the names to a file that is complete, and says so.
  void conclude(const Saving& saving);
  /// Closes removed files.
  void free_space(std::vector<data::PosixFile> removed);
  CheckpointInfo info(const TrainingPosition& position, const std::optional<Evaluation>& figures) const;
  std::string metric_name() const { return config_.is_forecast() ? "loss" : "top1"; }
  double metric_of(const Evaluation& figures) const { return config_.is_forecast() ? figures.loss : figures.top1; }
  void require_shared_folder() const;
  bool beats_best(const Evaluation& figures) const;
  std::optional<double> stored_best() const;
  int64_t bytes() const;

  const RunConfig& config_;
  const CheckpointConfig& options_;
  const comm::MpiGroup& world_;
  mesh::DeviceMesh& mesh_;
  Engine& engine_;
  RunLog& log_;
  CheckpointFolder folder_;
  const TrainingData data_;
  std::optional<double> best_;
  Saving saving_;
  std::optional<StateSnapshot> snapshot_;  // with --checkpoint-async
  std::unique_ptr<BackgroundSave> background_;
  std::thread freeing_;
  double longest_save_ = 0.0;
};

}  // namespace vit_hybrid::train
