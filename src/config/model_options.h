// Where a model's options come from: the command line and configurations, and the shape of the data (DataShape).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/config/load_run_config.h"
#include "src/config/option_table.h"
#include "src/config/run_config.h"

namespace vit_hybrid::train {

/// Adds the options of the model, bound to `config`.
void add_model(options::OptionTable& table, RunConfig& config);

// DataShape: what of the model the training data decide: channels, height, width, number of classes.

/// Of the training data of a run, by the structure of their first file.
struct DataShape {
  int64_t channels = 0;
  int64_t height = 0;  ///< of fields, or of the images as they are stored
  int64_t width = 0;
  int64_t num_classes = 0;       ///< of images: as many as are named, else the largest label and one; 0: not known
  bool has_class_names = false;  ///< else there may be more classes than that
  int64_t out_channels = 0;      ///< of targets that are fields; 0: as many as of inputs
  int64_t decoding_bytes = 0;    ///< and the others: as of DataConfig
  int64_t static_bytes = 0;
  int64_t climatology_bytes = 0;
  int64_t images = 0;
  int64_t valid_images = 0;

  bool operator==(const DataShape&) const = default;
};

/// Looks at the data of a resolved configuration, on this process alone (main thread; MPI is not needed). Nothing where
/// no files are read, or train-data is not there, which path_problems() says. Error(kBadData) where the file is not of
/// the known layout, Error(kMissingInput) for a folder without files.
std::optional<DataShape> look_at_data(const RunConfig& config);

/// The same by rank 0 for all. Collective over `world`; errors are agreed.
std::optional<DataShape> look_at_data(const RunConfig& config, const comm::MpiGroup& world);

/// Gives the model what the data have, where neither a configuration file, nor the environment, nor the command line
/// gives the option: in-channels, and out-channels and image-size of fields; num-classes, and the image-size of a
/// classifier where images are stored smaller than its own (the largest multiple of patch-size that they hold). Options
/// that are given and do not fit become one problem, which says what the data have and which side to change. Pure.
void follow_data(LoadedConfig& loaded, const DataShape& shape);

/// "5 channels of 16 x 24", of a field or image [channels, height, width].
std::string shape_text(const std::vector<int64_t>& shape);

/// What a model does not take is no fault of the model's where it comes from a checkpoint.
inline constexpr const char* kModelIsFixed =
    "the checkpoint's model stays as it was trained: give data with its channels and its grid, or train on these";

/// "from the data in era/train: image-size 16x24, in-channels 5": the options that follow_data() has set; empty where
/// it has set none.
std::string data_shape_line(const RunConfig& config);

}  // namespace vit_hybrid::train
