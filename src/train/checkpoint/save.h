// Writing of one checkpoint file by all ranks together.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/hdf5_writer.h"
#include "model/vit_options.h"
#include "parallel/comm/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/train/checkpoint/format.h"
#include "src/train/engine.h"

namespace vit_hybrid::train {

/// Bytes of a checkpoint's values: parameters and two moments in type `master`.
int64_t checkpoint_bytes(const model::VitOptions& model, at::ScalarType master);

/// Writes the engine's state as `path`, of which `info` says what it is: each rank writes what it owns. The file has
/// its name, and is on the storage, when it is complete. Error(kCannotCreate) or Error(kIo), agreed by all ranks,
/// leaves no file of this name that was not there before. Collective over `world`, the ranks of `mesh`.
void save_checkpoint(const comm::MpiGroup& world, mesh::DeviceMesh& mesh, Engine& engine,
                     const model::VitOptions& model, const CheckpointInfo& info, const std::string& path);

/// A box of a dataset that this rank writes, on the host and contiguous.
struct HostPiece {
  std::string dataset;
  std::vector<int64_t> start;
  at::Tensor values;  ///< may be a view of the engine's state
};

/// The steps of a save one by one: the file without its values (collective over `world`, errors agreed), and the values
/// that this rank writes into it (local).
std::unique_ptr<data::Hdf5Writer> create_checkpoint(const comm::MpiGroup& world, mesh::DeviceMesh& mesh, Engine& engine,
                                                    const model::VitOptions& model, const CheckpointInfo& info,
                                                    const std::string& path);
void visit_host_pieces(Engine& engine, const mesh::DeviceMesh& mesh, const std::function<void(HostPiece)>& visit);

}  // namespace vit_hybrid::train
