// ModelUse, TrainedModel: what the commands that use a trained model share: options, the configuration that its
// checkpoint brings, and the ranks with the model on them.
#pragma once

#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/base/memory_tracker.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/checkpoint/format.h"
#include "src/config/option_table.h"
#include "src/config/run_config.h"
#include "src/config/settings.h"
#include "src/train/model_runner.h"

namespace vit_hybrid::train {

/// What a command is given besides options of a run.
struct ModelUse {
  std::string checkpoint;  ///< file, or folder with `latest` in it
  std::string data;        ///< folder of year files (forecast), one HDF5 file (classify)
  std::string out;
  bool overwrite = false;
};

/// Adds --checkpoint, --data, --out and --overwrite; `out_help` says what is written.
void add_use_options(options::OptionTable& table, ModelUse& use, const std::string& out_help);

/// Adds those options of a run that have a meaning when a model is used, bound to `config`: layout, device, precision
/// and the description of the data; for an evaluation also those of batches and their reading.
enum class UsePurpose { kEvaluation, kForecast };
void add_run_options(options::OptionTable& table, RunConfig& config, UsePurpose purpose);

/// The configuration for `world_size` ranks: the model and, where `overrides` (entries of a command line) do not say
/// otherwise, precision, batch size and the description of the data from the checkpoint; the rest at its default. Files
/// of statistics are left out where the checkpoint holds the statistics themselves. The data are HDF5 files at `data`.
/// Problems are one Error(kUsage), the same on all ranks; Error(kBadData) where the checkpoint holds no configuration
/// of ours. Pure.
RunConfig config_for_use(const CheckpointInfo& checkpoint, const std::string& path, const std::string& data,
                         const options::Source& overrides, int world_size);

/// Whether the time means of such a configuration's data were named by the training: their file may be gone by now.
bool has_time_means_of_training(const DataConfig& data, const options::Source& overrides);

/// Every path of such a configuration that is not there or cannot be read. For one rank to ask.
std::vector<std::string> missing_paths(const RunConfig& config);

// TrainedModel: the ranks of a job with a checkpoint's model on them, ready to predict.

class TrainedModel {
 public:
  /// Threads, device and mesh as `config` (resolved and checked) says, and the weights of `checkpoint`, whose sums are
  /// verified. Parameters are all that is kept: no gradients and no optimizer state. `world` is all processes of the
  /// job, or the group that the mesh is made of. Collective over it.
  TrainedModel(const StepConfig& config, const DataConfig& data, const CheckpointReader& checkpoint,
               const comm::MpiGroup& world);

  mesh::DeviceMesh& mesh() { return mesh_; }
  ModelRunner& runner() { return runner_; }

 private:
  MemoryTracker::Attachment attachment_;
  mesh::DeviceMesh mesh_;
  ModelRunner runner_;
};

/// Says `name`, the run's, what it was trained for, the layout it is used in, and the types and kernels it takes.
void announce(const std::string& name, const StepConfig& config, const CheckpointReader& checkpoint,
              c10::Device device);

/// Says what of the data that are `given` is taken otherwise than in the training or cannot be compared with it:
/// statistics, the way of the rows, numbers of classes, and what a checkpoint of an earlier format does not hold.
void warn_of_use(const DataConfig& config, const CheckpointReader& checkpoint, const TrainingData& given);

}  // namespace vit_hybrid::train
