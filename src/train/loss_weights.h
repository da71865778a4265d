// The weights of a run's loss, of the rows and of the channels of its fields.
#pragma once

#include <string>
#include <vector>

#include "data/datasets/coordinates.h"
#include "data/datasets/dataset.h"
#include "model/losses.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/checkpoint/format.h"
#include "src/config/run_config.h"

namespace vit_hybrid::train {

/// What predicted fields are.
struct LossFields {
  data::Grid grid;                    ///< by whose latitudes rows count
  std::vector<std::string> channels;  ///< names of the predicted channels, in their order
  bool names_are_given = true;        ///< false: the data name none, and statistics are in the order of the data
  std::vector<double> stds;           ///< of these channels, which the fields are divided by; empty: not known
  data::Lead lead = {0, 0.0};         ///< of the pairs, which increments are to be over; 0: not asked for
};

/// Of a data set, `described` of which the grid and the deviations are taken.
LossFields loss_fields(const data::Dataset& dataset, const TrainingData& described);

/// The weights that `loss` asks for, on the host; undefined where it asks for none, and of a classifier. Those of
/// channels have mean 1; kIncrementWeights are of the statistics in the folder `stats` (may be empty). Collective over
/// `group`; errors are agreed: Error(kMissingInput) without a file, Error(kBadData) for one of another shape, with
/// numbers that are negative or not finite, or statistics without one of the channels, Error(kUsage) for a name that no
/// channel has, and where all weights are 0.
model::FieldWeights loss_weights(const LossConfig& loss, const model::VitOptions& model, const std::string& stats,
                                 const comm::MpiGroup& group, const LossFields& fields);

}  // namespace vit_hybrid::train
