// Writing of one checkpoint file by all ranks together.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_writer.h"
#include "model/vit_options.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/checkpoint/format.h"
#include "src/train/engine.h"
#include "src/train/saving/engine_state.h"

namespace vit_hybrid::train {

/// Bytes of a checkpoint's values: parameters and the optimizer's state of them, in the master type.
int64_t checkpoint_bytes(Engine& engine, const model::VitOptions& model);

/// Writes the engine's state as `path`, of which `info` says what it is: each rank writes what it owns. The file has
/// its name, and is on the storage, when it is complete. Error(kCannotCreate) or Error(kIo), agreed by all ranks,
/// leaves no file of this name that was not there before. Collective over `world`, the ranks of `mesh`.
void save_checkpoint(const comm::MpiGroup& world, mesh::DeviceMesh& mesh, Engine& engine,
                     const model::VitOptions& model, const CheckpointInfo& info, const std::string& path);

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
  /// Arguments and errors as save_checkpoint()'s; `world` and `mesh` outlive it. Makes the file, without values.
  /// Collective over `world`.
  CheckpointWriter(const comm::MpiGroup& world, mesh::DeviceMesh& mesh, Engine& engine, const model::VitOptions& model,
                   const CheckpointInfo& info, const std::string& path);

  /// Writes a box of host values, contiguous, and counts them in their tensor's checksum. This and flush() make no MPI
  /// and no HDF5 call; any threads may write boxes at once. Local. Error(kIo).
  void write(const StateBox& box);
  /// Waits until what this rank wrote is on the storage. Local. Error(kIo).
  void flush() { file_.flush(); }
  /// Adds up the ranks' checksums, and gives the file its name. Collective over `world`.
  void finish();

 private:
  mesh::DeviceMesh& mesh_;
  std::mutex mutex_;     // guards checksums_
  Checksums checksums_;  // of what this rank has written
  data::Hdf5Writer file_;
};

}  // namespace vit_hybrid::train
