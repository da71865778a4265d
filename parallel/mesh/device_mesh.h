// DeviceMesh: the communicators of this rank, one for each axis of the mesh.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <memory>

#include "parallel/comm/communicator.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/mesh/parallel_dims.h"

namespace vit_hybrid::mesh {

/// Who is in which group. A group of one is a group like any other, so that no layer asks whether it is distributed.
/// The rank in the group of an axis is the coordinate on it; ranks of other groups follow the world's.
class DeviceMesh {
 public:
  /// Builds all groups in one fixed order: world, data, tensor, pipeline, model. `world` must have dims.size() ranks.
  /// On a CUDA device, the device of this rank must be `device`. Collective over `world`.
  DeviceMesh(const ParallelDims& dims, const comm::MpiGroup& world, c10::Device device,
             const comm::TransportOptions& options = {});

  comm::Communicator& axis(Axis axis) { return *axes_[static_cast<size_t>(axis)]; }
  /// The ranks with the same slice of the model.
  comm::Communicator& data() { return axis(Axis::kData); }
  /// The ranks that split the layers' weights among them.
  comm::Communicator& tensor() { return axis(Axis::kTensor); }
  /// The stages, rank 0 being the first.
  comm::Communicator& pipeline() { return axis(Axis::kPipeline); }
  /// The ranks that together hold one replica of the model: tensor x pipeline.
  comm::Communicator& model() { return *model_; }
  comm::Communicator& world() { return *world_; }
  /// All ranks, for small control messages in host memory; world() itself where tensors are host tensors.
  comm::Communicator& host_world() { return host_world_ != nullptr ? *host_world_ : *world_; }

  const ParallelDims& dims() const { return dims_; }
  int rank() const { return rank_; }
  int size() const { return dims_.size(); }
  const Coordinate& coordinate() const { return coordinate_; }
  c10::Device device() const { return device_; }

 private:
  ParallelDims dims_;
  int rank_;
  Coordinate coordinate_;
  c10::Device device_;
  // In the order of construction; the world, from which the others are split, goes last.
  std::unique_ptr<comm::Communicator> world_;
  std::unique_ptr<comm::Communicator> host_world_;
  std::array<std::unique_ptr<comm::Communicator>, kNumAxes> axes_;
  std::unique_ptr<comm::Communicator> model_;
};

}  // namespace vit_hybrid::mesh
