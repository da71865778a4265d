// TrainingData: what a checkpoint says of the data that its model was trained on, and in what other data differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/datasets/coordinates.h"
#include "data/datasets/normalization.h"

namespace vit_hybrid::train {

/// What is not known is empty.
struct TrainingData {
  int64_t num_samples = 0;         ///< in use (what the order of an epoch permutes)
  std::string channels = {};       ///< their names as the data give them, separated by commas
  std::string class_names = {};    ///< in the order of their numbers, separated by commas
  std::vector<double> means = {};  ///< by channel, in the units of the files: inputs are (x - mean) / std
  std::vector<double> stds = {};
  data::Grid grid = {};
};

/// Means and deviations, where they are known.
std::optional<data::Normalization> normalization_of(const TrainingData& data);

/// In what data differ from those of a training: a sentence, empty where they do not or one of the two does not know.
/// "the data have the channels u,v, the model was trained on v,u"
std::string channels_difference(const TrainingData& trained, const std::string& given);
std::string classes_difference(const TrainingData& trained, const std::string& given);
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

}  // namespace vit_hybrid::train
