// The format of a checkpoint: names, attributes, version, and the model as JSON.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/vit_options.h"
#include "src/checkpoint/training_data.h"

namespace vit_hybrid::train {

/// One JSON object with the name of every model option ("embed-dim", as on the command line) and its value.
std::string model_json(const model::VitOptions& options);

/// The options that a text of model_json() holds. Error(kBadData) where it is no such text.
model::VitOptions model_from_json(const std::string& json);

/// An option that two models have with other values.
struct ModelDifference {
  std::string option;  ///< "embed-dim"
  std::string first;
  std::string second;
};

/// The options in which two texts of model_json() differ, in the order of the table.
std::vector<ModelDifference> model_differences(const std::string& first_json, const std::string& second_json);

/// Whether an option says how a model is trained, not what it computes: dropout rates and label smoothing.
bool is_training_only(const std::string& model_option);

/// A line for each option in which `wanted` differs from the checkpoint's model: "--depth is 8, the checkpoint's is 6".
std::vector<std::string> model_differences(const std::string& checkpoint_json, const model::VitOptions& wanted);

/// Raised whenever a file of the new kind would be misread by an older program.
inline constexpr int64_t kCheckpointFormat = 5;
/// Files from this format on are read.
inline constexpr int64_t kOldestFormat = 3;
/// From this format on a file says what its model was trained on: all of TrainingData, not only samples and channels.
inline constexpr int64_t kTrainingDataFormat = 4;
/// From this format on it says of which blocks its run put sums together.
inline constexpr int64_t kSumBlocksFormat = 5;

/// Datasets, contiguous, each a whole global tensor in the master type under its canonical name:
///   /parameters/<name>, and /optimizer/<state>/<name> for each state that the optimizer keeps of a parameter:
///   exp_avg and exp_avg_sq (adam, adamw, lamb), momentum_buffer (sgd, lars), none (sgd without momentum).
/// Each carries the text attribute "checksum" (TensorChecksum::text()). The file's attributes are those of
/// CheckpointInfo, of long texts and lists in parts: "kernels", "kernels.1" (data/hdf5/hdf5_attributes.h). A file
/// without an optimizer's name holds weights alone (an import): it can be evaluated and started from, not resumed.
inline constexpr const char* kParametersGroup = "parameters";
inline constexpr const char* kOptimizerGroup = "optimizer";
inline constexpr const char* kChecksumAttribute = "checksum";
std::string dataset_path(const std::string& group, const std::string& name);

/// The attributes of a checkpoint's file, by the names of the members (of the grid "latitudes" and "longitudes").
struct CheckpointInfo : TrainingData {
  int64_t format = kCheckpointFormat;
  std::string version;          ///< of the program that wrote it
  std::string git_commit;       ///< with "+changes" where the sources had any
  std::string libraries;        ///< "LibTorch 2.11.0, HDF5 1.10.8, ..." of that program, for the reader's eyes
  std::string config;           ///< YAML with every option that --config accepts: the resolved configuration of the run
  std::string model;            ///< JSON of the model options alone (model_json()), what decides whether weights fit
  std::string optimizer;        ///< "adamw", as --optimizer has it; empty in a file of weights alone
  int64_t step = 0;             ///< iterations done, skipped ones included: the key of dropout's draws
  int64_t optimizer_steps = 0;  ///< steps that changed the weights: Adam's t
  double loss_scale = 0.0;      ///< of fp16, where it is dynamic; 0: none to go on from
  int64_t good_steps = 0;       ///< without an overflow since it was changed
  int64_t skipped_steps = 0;    ///< iterations whose gradient was not finite
  int64_t epoch = 0;            ///< epochs completed
  int64_t samples_of_epoch = 0;  ///< samples of the epoch under way that were seen, in the order of (seed, epoch)
  int64_t seed = 0;              ///< of weights, dropout, sample order
  std::string kernels;           ///< that were chosen, KernelTable::text(); empty where there was no choice
  std::string layout;            ///< "dp 4 x tp 2 x pp 2, zero 1" of the run that wrote it, for the reader's eyes
  std::string sum_blocks;        ///< "4,4": of the world's ranks, DeviceMesh::sum_blocks()
  std::string metric;            ///< name of the validation figure below, or empty: "loss", "top1"
  double metric_value = 0.0;
};

/// Sum over the elements of a tensor of mix(global row-major index, bits of the value) modulo 2^64: ranks add what they
/// hold of a global tensor, in any layout, each element once; any changed bit changes it.
class TensorChecksum {
 public:
  /// Adds the box of a global tensor of shape `global` that begins at `start` and holds `values` (host; any strides).
  void add(std::span<const int64_t> global, std::span<const int64_t> start, const at::Tensor& values);
  void add(uint64_t partial) { sum_ += partial; }
  uint64_t value() const { return sum_; }
  /// 16 hexadecimal digits.
  std::string text() const;

 private:
  uint64_t sum_ = 0;
};

}  // namespace vit_hybrid::train
