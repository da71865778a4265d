// TrainedModel: the ranks of a job with a checkpoint's model on them, ready to predict.
#pragma once

#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/base/memory_tracker.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/config/run_config.h"
#include "src/train/model_runner.h"

namespace vit_hybrid::train {

class TrainedModel {
 public:
  /// Threads, device and mesh as `config` (resolved and checked) says, and the weights of `checkpoint`, whose sums are
  /// verified. Parameters are all that is kept: no gradients and no optimizer state. `world` is all processes of the
  /// job, or the group that the mesh is made of. Collective over it.
  TrainedModel(const RunConfig& config, const CheckpointReader& checkpoint, const comm::MpiGroup& world);

  mesh::DeviceMesh& mesh() { return mesh_; }
  ModelRunner& runner() { return runner_; }

 private:
  MemoryTracker::Attachment attachment_;
  mesh::DeviceMesh mesh_;
  ModelRunner runner_;
};

/// Says the name of the run, what it was trained for, the layout it is used in, and the types and kernels it takes.
void announce(const RunConfig& config, const CheckpointReader& checkpoint, c10::Device device);

/// Says what of the data that are `given` is taken otherwise than in the training or cannot be compared with it:
/// statistics, the way of the rows, numbers of classes, and what a checkpoint of an earlier format does not hold.
void warn_of_use(const RunConfig& config, const CheckpointReader& checkpoint, const TrainingData& given);

}  // namespace vit_hybrid::train
