// BackgroundSave: a checkpoint that is written by a thread while training goes on.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "model/vit_options.h"
#include "parallel/comm/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/train/checkpoint/save.h"

namespace vit_hybrid::train {

/// Copies what this rank writes to host memory and starts to write it. The thread makes no MPI and no HDF5 call.
class BackgroundSave {
 public:
  /// Arguments and errors as save_checkpoint(); `world` outlives it. Returns when the state may change again.
  /// Collective over `world`.
  BackgroundSave(const comm::MpiGroup& world, mesh::DeviceMesh& mesh, Engine& engine, const model::VitOptions& model,
                 const CheckpointInfo& info, const std::string& path);
  /// Stops the thread after the piece that it is at.
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
  std::vector<HostPiece> pieces_;
  std::unique_ptr<data::Hdf5Writer> file_;
  std::exception_ptr error_;  // of the thread, to be read after it has ended
  std::atomic<bool> is_done_{false};
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

}  // namespace vit_hybrid::train
