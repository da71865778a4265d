// evaluate(): open, run, print.
#include "src/train/evaluate.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/train/data_source.h"
#include "src/train/evaluation_report.h"
#include "src/train/evaluator.h"
#include "src/train/trained_model.h"

namespace vit_hybrid::train {

namespace {

void write(const RunConfig& config, const ModelUse& use, const CheckpointReader& checkpoint, const DataSource& data,
           const Evaluation& figures) {
  Json json = {{"checkpoint", checkpoint.path()},
               {"step", checkpoint.info().step},
               {"data", config.data.valid_data},
               {"precision", precision_name(config.precision.kind)}};
  if (figures.is_forecast()) {
    json["acc_against"] = data.climatology.defined() ? "time means" : "channel means";
    json["rmse_unit"] = "standard deviations";
  }
  json.update(to_json(figures, data.valid->channel_names()));
  write_json_file(use.out, json);
}

// Before the work, whose figures would be lost.
void require_folder_of(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    throw Error(ErrorClass::kCannotCreate, str("--out is '", path, "', but the folder '", folder, "' does not exist"),
                "make it first");
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw Error(ErrorClass::kCannotCreate,
                str("--out is '", path, "', but nothing can be written into the folder '", folder, "'"),
                "check its permissions, or give another --out");
  }
}

}  // namespace

void refuse_existing(const std::string& path, bool overwrite) {
  if (!overwrite && std::filesystem::exists(path)) {
    throw Error(ErrorClass::kCannotCreate, str("'", path, "' is there already"),
                "give --overwrite to replace it, or another --out");
  }
}

Evaluation evaluate(const RunConfig& config, const ModelUse& use, const CheckpointReader& checkpoint,
                    const comm::MpiGroup& world) {
  comm::agreed_on_rank_0(world, [&] {
    if (!use.out.empty()) {
      refuse_existing(use.out, use.overwrite);
      require_folder_of(use.out);
    }
  });
  const CheckpointInfo& trained = checkpoint.info();
  const DataSource data = open_valid_data(config, trained, world);
  comm::agreed(world, [&] { require_trained_data(checkpoint, data.described); });
  TrainedModel model(config, checkpoint, world);
  for (const std::string& line : describe(config, checkpoint, model.mesh().device())) {
    log_line(line);
  }
  log_line(str("  input     ", data.text));
  warn_of_use(config, checkpoint, data.described);
  const Timer timer;
  Evaluator evaluator(config, model.mesh(), model.runner(), *data.valid, data.num_valid_samples, data.climatology,
                      data::joined_grid(data.described.grid, trained.grid));
  Evaluation figures = evaluator.evaluate();
  const double seconds = timer.seconds();
  for (const std::string& line : table_lines(figures, data.valid->channel_names())) {
    log_line(line);
  }
  log_line(str("evaluated in ", fixed_text(seconds, 2), " s, ",
               fixed_text(static_cast<double>(figures.samples) / seconds, 2), " samples/s"));
  if (!use.out.empty()) {
    comm::agreed_on_rank_0(world, [&] { write(config, use, checkpoint, data, figures); });
    log_line("wrote " + use.out);
  }
  return figures;
}

}  // namespace vit_hybrid::train
