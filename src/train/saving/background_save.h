// BackgroundSave: a checkpoint that is written by a thread while training goes on.
#pragma once

#include <atomic>
#include <exception>
#include <string>
#include <thread>

#include "model/vit_options.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/train/saving/save.h"
#include "src/train/saving/state_snapshot.h"

namespace vit_hybrid::train {

/// Copies what this rank writes and starts to write it. The thread makes no MPI and no HDF5 call.
class BackgroundSave {
 public:
  /// Arguments and errors as save_checkpoint(). `snapshot`, which it fills, `world` and `mesh` outlive it. Returns when
  /// the state may change again. Collective over `world`.
  BackgroundSave(const comm::MpiGroup& world, mesh::DeviceMesh& mesh, Engine& engine, const model::VitOptions& model,
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

}  // namespace vit_hybrid::train
