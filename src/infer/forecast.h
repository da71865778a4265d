// forecast(): a checkpoint's model on its own output, from a state of a data set.
#pragma once

#include "parallel/comm/mpi/mpi_group.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/config/run_config.h"
#include "src/infer/forecast_options.h"

namespace vit_hybrid::train {

/// What of `config` no forecast can be made with: Error(kUsage). Pure.
void check_forecast(const RunConfig& config, const ForecastOptions& options);

/// Makes the forecast, writes its files and prints a table. `config` as from config_for_use(), seen by
/// check_forecast(). Collective over `world`, errors agreed.
void forecast(const RunConfig& config, const ForecastOptions& options, const CheckpointReader& checkpoint,
              const comm::MpiGroup& world);

}  // namespace vit_hybrid::train
