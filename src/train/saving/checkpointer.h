// Checkpointer: when a checkpoint is due, what is in it, and the thread that writes it.
//
// A save has three parts (CheckpointWriter). Rank 0 makes the file with serial HDF5, allocated and not filled, and
// tells the offsets. All ranks pwrite their boxes, counting them in checksums on the way, and fsync. The checksums are
// added up, rank 0 writes them into the attributes, seals the head of the file (data/reading/file_seal.h) and fsyncs.
// Then: rename, fsync of the folder, `latest`, `best`, and only then old checkpoints go. With --checkpoint-async the
// middle part is a thread's, from a copy of the state; how many ranks have finished travels with the reduction at each
// step border, and when all have, the main thread ends the save there.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "data/hdf5/hdf5_writer.h"
#include "data/reading/posix_file.h"
#include "model/vit_options.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/base/timer.h"
#include "src/checkpoint/checkpoint_folder.h"
#include "src/checkpoint/format.h"
#include "src/config/run_config.h"
#include "src/report/run_log.h"
#include "src/report/scores.h"
#include "src/train/engine.h"
#include "src/train/saving/engine_state.h"

namespace vit_hybrid::train {

/// A box of a dataset that this rank writes.
struct StateBox {
  std::string dataset;
  std::vector<int64_t> shape;  ///< of the dataset
  std::vector<int64_t> start;
  at::Tensor values;
};

/// All of them, with views of the engine's state, which stays where it is in memory.
std::vector<StateBox> written_boxes(Engine& engine, const mesh::DeviceMesh& mesh);

/// A checkpoint under way: made by all ranks together, filled by each, ended together.
class CheckpointWriter {
 public:
  /// Arguments and errors as save_checkpoint()'s; `world` outlives it. Makes the file, without values.
  /// Collective over `world`.
  CheckpointWriter(const comm::MpiGroup& world, Engine& engine, const model::VitOptions& model,
                   const CheckpointInfo& info, const std::string& path);

  /// Writes a box of host values, contiguous, and counts them in their tensor's checksum. This and flush() make no MPI
  /// and no HDF5 call; any threads may write boxes at once. Local. Error(kIo).
  void write(const StateBox& box);
  /// Waits until what this rank wrote is on the storage. Local. Error(kIo).
  void flush() { file_.flush(); }
  /// Adds up the ranks' checksums, and gives the file its name. Collective over `world`.
  void finish();

 private:
  const comm::MpiGroup& world_;
  std::mutex mutex_;     // guards checksums_
  Checksums checksums_;  // of what this rank has written
  data::Hdf5Writer file_;
};

/// Writes the engine's state as `path`, of which `info` says what it is: each rank writes what it owns. The file has
/// its name, and is on the storage, when it is complete. Error(kCannotCreate) or Error(kIo), agreed by all ranks,
/// leaves no file of this name that was not there before. Collective over `world`, the ranks of `mesh`.
void save_checkpoint(const comm::MpiGroup& world, const mesh::DeviceMesh& mesh, Engine& engine,
                     const model::VitOptions& model, const CheckpointInfo& info, const std::string& path);

/// Bytes of a checkpoint's values: parameters and the optimizer's state of them, in the master type.
int64_t checkpoint_bytes(Engine& engine, const model::VitOptions& model);

/// The memory is made and touched once, before training: a save then waits for a copy alone, not for fresh pages.
class StateSnapshot {
 public:
  /// `engine` outlives it. Page-locked memory where the state is on a GPU.
  StateSnapshot(Engine& engine, const mesh::DeviceMesh& mesh);

  /// Copies the state as it is now over what was taken before.
  void take();
  /// What was taken last.
  const std::vector<StateBox>& boxes() const { return copies_; }

 private:
  std::vector<StateBox> state_;
  std::vector<StateBox> copies_;
};

/// Copies what this rank writes and starts to write it. The thread makes no MPI and no HDF5 call.
class BackgroundSave {
 public:
  /// Arguments and errors as save_checkpoint(). `snapshot`, which it fills, and `world` outlive it. Returns when the
  /// state may change again. Collective over `world`.
  BackgroundSave(const comm::MpiGroup& world, Engine& engine, const model::VitOptions& model,
                 const CheckpointInfo& info, const std::string& path, StateSnapshot& snapshot);
  /// Stops the thread after the box that it is at.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  /// Whether this rank has nothing left to write, or could not; each rank for itself.
  bool is_done() const { return is_done_; }
  /// Waits for the thread; then the file gets its name, or all ranks throw what one of them met. Collective over
  /// `world`.
  void finish();

 private:
  void write();

  const comm::MpiGroup& world_;
  const StateSnapshot& snapshot_;
  CheckpointWriter file_;
  std::exception_ptr error_;  // of the thread, to be read after it has ended
  std::atomic<bool> is_done_{false};
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

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
  Checkpointer(const RunConfig& config, const comm::MpiGroup& world, const mesh::DeviceMesh& mesh, Engine& engine,
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
  const mesh::DeviceMesh& mesh_;
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
