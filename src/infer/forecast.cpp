// forecast(): states on rank 0, the network on all ranks.
#include "src/infer/forecast.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>

#include "data/tools/tool_files.h"
#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/infer/forecast_record.h"
#include "src/infer/rollout.h"
#include "src/infer/trained_model.h"

namespace vit_hybrid::train {

namespace {

// What the lead times will take on the disk.
void require_room(const RunConfig& config, const ForecastOptions& options) {
  const model::VitOptions& model = config.model;
  const int64_t state =
      model.in_channels * model.image_height * model.image_width * static_cast<int64_t>(sizeof(float));
  const int64_t most_steps = std::numeric_limits<int64_t>::max() / state;
  const std::filesystem::path folder = std::filesystem::path(options.use.out).parent_path();
  data::check_room(folder.empty() ? "." : folder.string(), state * std::min(options.steps, most_steps));
}

}  // namespace

void check_forecast(const RunConfig& config, const ForecastOptions& options) {
  if (!config.is_forecast()) {
    throw Error(ErrorClass::kUsage, "the checkpoint's model classifies images (--task classify), it makes no forecast",
                "give the checkpoint of a model that was trained with --task forecast; 'evaluate' takes both");
  }
  const model::VitOptions& model = config.model;
  if (model.in_channels != model.out_channels) {
    throw Error(ErrorClass::kUsage, str("the model takes ", model.in_channels, " channels and gives ",
                                        model.out_channels, ", so its output cannot be its next input"));
  }
  if (config.parallel.dp > 1) {
    const int ranks = config.parallel.dp * config.parallel.model_size();
    throw Error(ErrorClass::kUsage,
                str("--dp is ", config.parallel.dp, ": a forecast is one trajectory, which replicas cannot share"),
                str("start ", config.parallel.model_size(), config.parallel.model_size() == 1 ? " rank" : " ranks",
                    ", or give --tp and --pp whose product is ", ranks));
  }
  if (!options.use.out.ends_with(".h5")) {
    throw Error(ErrorClass::kUsage, str("--out is '", options.use.out, "'; allowed: a name that ends with .h5"),
                "its figures get the same name with .json");
  }
}

void forecast(const RunConfig& config, const ForecastOptions& options, const CheckpointReader& checkpoint,
              const comm::MpiGroup& world) {
  const comm::MpiGroup self = world.split(world.rank());
  std::optional<ForecastRecord> record;  // on rank 0
  comm::agreed_on_rank_0(world, [&] {
    require_room(config, options);
    record.emplace(config, options, checkpoint.path(), checkpoint.info(), self);
    require_trained_data(checkpoint, record->described());
  });
  TrainedModel model(config, checkpoint, world);
  for (const std::string& line : describe(config, checkpoint, model.mesh().device())) {
    log_line(line);
  }
  for (const std::string& line : record ? record->description() : std::vector<std::string>()) {
    log_line("  " + line);
  }
  if (record) {
    warn_of_use(config, checkpoint, record->described());
  }
  const Timer timer;
  const std::vector<int64_t> shape = {config.model.in_channels, config.model.image_height, config.model.image_width};
  Rollout rollout(model.runner(), model.mesh(), shape, record ? record->start() : at::Tensor());
  Progress progress(str("forecasting ", options.steps, " lead times"), options.steps);
  for (int64_t lead = 1; lead <= options.steps; ++lead, progress.add()) {
    const at::Tensor state = rollout.advance();
    comm::agreed_on_rank_0(world, [&] { record->add(lead, state); });
  }
  comm::agreed_on_rank_0(world, [&] { record->finish(); });
  for (const std::string& line : record ? record->table_lines() : std::vector<std::string>()) {
    log_line(line);
  }
  const ForecastPaths paths = forecast_paths(options);
  log_line(str("wrote ", paths.fields, " and ", paths.figures, " in ", fixed_text(timer.seconds(), 2), " s"));
}

}  // namespace vit_hybrid::train
