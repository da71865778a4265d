// What tests of a trained model in use need: weather files, a configuration for them, and a checkpoint.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/checkpoint/format.h"
#include "src/config/run_config.h"
#include "src/report/metrics_log.h"
#include "tests/support/training_harness.h"

namespace vit_hybrid::testing {

/// No rank prints while it lives.
class Quiet {
 public:
  Quiet();
  ~Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};

inline constexpr int64_t kWeatherTimes = 9;  ///< in each of two files
/// Of the files, which have the shape of small_forecaster().
const std::vector<std::string>& weather_channels();
at::Tensor weather_means();  ///< [1, 3, 1, 1], double
at::Tensor weather_stds();
/// Fields of file 1 or 2 in the units of the data: [9, 3, 12, 20], float32.
at::Tensor weather_fields(uint64_t file);

/// Makes `folder` with the files 2001.h5 and 2002.h5 and their statistics; rank 0 writes. Collective over `world`.
void write_weather(const comm::MpiGroup& world, const std::string& folder);

/// A configuration of small_forecaster() on such a folder, resolved for the ranks of the layout.
train::RunConfig weather_config(const std::string& folder, const Layout& layout, train::Precision precision);

/// Saves the weights that the configuration's seed gives as the checkpoint `path`, which says that they were trained on
/// `data` as far as files of this format do; rank 0 writes. Collective over `world`.
void save_initial_model(const comm::MpiGroup& world, const train::RunConfig& config, const std::string& path,
                        const train::TrainingData& data = {}, int64_t format = train::kCheckpointFormat);

/// Some layouts of a number of ranks, with and without replicas.
std::vector<Layout> layouts_of(int ranks);

train::Json read_json(const std::string& path);

}  // namespace vit_hybrid::testing
