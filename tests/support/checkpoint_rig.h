// CheckpointRig: what a checkpoint is saved from and restored into.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/train/saving/checkpointer.h"
#include "src/train/trainer.h"
#include "tests/support/vit_harness.h"

namespace vit_hybrid::testing {

/// A run's parts as train() puts them together, without data; the model is small_forecaster(), replicated on all ranks.
struct CheckpointRig {
  explicit CheckpointRig(const comm::MpiGroup& group, std::string folder, int64_t keep = 2)
      : CheckpointRig(group, std::move(folder), make_config(group.size(), keep)) {}
  CheckpointRig(const comm::MpiGroup& group, std::string folder, train::RunConfig run)
      : world(group),
        config(std::move(run)),
        mesh(mesh::ParallelDims(group.size(), 1, 1), group, c10::Device(c10::kCPU)),
        engine(train::engine_options(config), mesh),
        log({}, 1),
        checkpoints(config, group, mesh, engine, log, std::move(folder), {64, "u,v"}) {}

  static train::RunConfig make_config(int ranks, int64_t keep) {
    train::RunConfig config;
    config.model = small_forecaster();
    config.parallel.dp = ranks;
    config.parallel.micro_batch_size = 1;
    config.checkpoint.keep = keep;
    config.checkpoint.every = 1;
    return config;
  }

  const comm::MpiGroup& world;
  train::RunConfig config;
  mesh::DeviceMesh mesh;
  train::Engine engine;
  train::RunLog log;
  train::Checkpointer checkpoints;
};

/// The figures of a validation that found this loss.
inline train::Evaluation loss_of(double loss) {
  train::Evaluation figures;
  figures.samples = 1;
  figures.loss = loss;
  figures.rmse = {loss};
  return figures;
}

}  // namespace vit_hybrid::testing
