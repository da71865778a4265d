// The format of a checkpoint: names, attributes, checksums, version, the model as JSON, and what it was trained on
// (TrainingData). A tensor's layout in it: its name, shape and attributes here; which boxes of it each rank writes,
// src/train/saving/engine_state.cpp.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/datasets/coordinates.h"
#include "data/datasets/normalization.h"
#include "model/vit_options.h"
#include "parallel/comm/mpi/mpi_group.h"

namespace vit_hybrid::train {

/// What is not known is empty.
struct TrainingData {
  int64_t num_samples = 0;         ///< in use (what the order of an epoch permutes)
  std::string channels = {};       ///< their names as the data give them, separated by commas
  std::string units = {};          ///< theirs, likewise; nothing between two commas: not known
  std::string class_names = {};    ///< in the order of their numbers, separated by commas
  std::vector<double> means = {};  ///< by channel, in the units of the files: inputs are (x - mean) / std
  std::vector<double> stds = {};
  data::Grid grid = {};
  data::Lead lead = {.rows = 0};  ///< from an input to its target; no rows: not known, or no pairs
  std::string roles = {};         ///< data::roles_text(); empty: states are taken and predicted
  /// By channel that is taken and predicted, in the units of the files: of the increments that the model predicts;
  /// empty: it predicts states.
  std::vector<double> increment_means = {};
  std::vector<double> increment_stds = {};
};

/// Means and deviations, where they are known.
std::optional<data::Normalization> normalization_of(const TrainingData& data);

/// In what data differ from those of a training: a sentence, empty where they do not or one of the two does not know.
/// "the data have the channels u,v, the model was trained on v,u"
std::string channels_difference(const TrainingData& trained, const std::string& given);
/// "the data have t2m in degC, the model was trained on it in K"
std::string units_difference(const TrainingData& trained, const std::string& given);
std::string classes_difference(const TrainingData& trained, const std::string& given);
std::string lead_difference(const TrainingData& trained, const data::Lead& given);
/// Inputs and outputs beside states (data::FieldRoles), and whether increments are predicted.
std::string roles_difference(const TrainingData& trained, const TrainingData& given);
std::string grid_difference(const TrainingData& trained, const data::Grid& given);
/// The same where the training's rows are not known, the usual ones run from the north, and the data's from the south.
std::string doubt_of_rows(const TrainingData& trained, const data::Grid& given);
/// Statistics are the same where no normalised value would move by more than 1e-5 standard deviations at the mean and
/// one deviation from it, as of float32 and float64 files of the same numbers.
std::string statistics_difference(const TrainingData& trained, const TrainingData& given);

/// Error(kBadData) for what no training has: lists of other lengths, deviations that are not above 0, points that are
/// no grid's.
void check_training_data(const TrainingData& data, const std::string& where);

/// All but the number of samples, for files of other programs; and back, with errors as check_training_data()'s.
std::string training_data_json(const TrainingData& data);
TrainingData training_data_of(const std::string& json, const std::string& where);

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
inline constexpr int64_t kCheckpointFormat = 8;
/// Files from this format on are read.
inline constexpr int64_t kOldestFormat = 3;
/// From this format on a file says what its model was trained on: all of TrainingData, not only samples and channels.
inline constexpr int64_t kTrainingDataFormat = 4;
/// From this format on it says of which blocks its run put sums together.
inline constexpr int64_t kSumBlocksFormat = 5;
/// From this format on it says how far ahead its model predicts.
inline constexpr int64_t kLeadFormat = 6;
/// From this format on it says what its model takes and gives beside states.
inline constexpr int64_t kRolesFormat = 7;
/// And the units of the channels.
inline constexpr int64_t kUnitsFormat = 8;

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

/// The attributes of a checkpoint's file, by the names of the members (of the grid "latitudes" and
/// "longitudes", of the lead "lead_rows" and "lead_hours").
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

/// Sum over i < count of mix(global index first_index + i, bits of values[i]) modulo 2^64.
uint64_t checksum_of(const float* values, int64_t count, int64_t first_index);
uint64_t checksum_of(const double* values, int64_t count, int64_t first_index);

/// By name.
using Checksums = std::map<std::string, TensorChecksum>;

/// Adds what each rank has counted. The keys are the same on all ranks. Collective over `ranks`.
void add_up(Checksums& checksums, const comm::MpiGroup& ranks);

}  // namespace vit_hybrid::train
