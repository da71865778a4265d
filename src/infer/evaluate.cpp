// evaluate(): opens the validation data, runs the model over them, prints and writes scores and predictions.
#include "src/infer/evaluate.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "data/datasets/year_files.h"
#include "data/zarr/zarr_metadata.h"
#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/infer/forecast_store.h"
#include "src/infer/model_use.h"
#include "src/train/data_source.h"
#include "src/train/evaluator.h"
#include "src/train/loss_weights.h"
#include "src/train/run_folder.h"

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
void require_folder_of(const std::string& path, const std::string& option) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    throw Error(ErrorClass::kCannotCreate,
                str(option, " is '", path, "', but the folder '", folder, "' does not exist"), "make it first");
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw Error(ErrorClass::kCannotCreate,
                str(option, " is '", path, "', but nothing can be written into the folder '", folder, "'"),
                "check its permissions, or give another " + option);
  }
}

void check_outputs(const RunConfig& config, const ModelUse& use, const PredictionOptions& predictions,
                   const std::string& checkpoint) {
  const std::vector<std::pair<std::string, std::string>> outputs = {
      {"--out", use.out}, {"--predictions", predictions.path}, {"--confusion", predictions.confusion}};
  std::map<std::filesystem::path, std::string> by_path;
  for (const auto& [option, path] : outputs) {
    if (path.empty()) {
      continue;
    }
    const auto [same, is_new] = by_path.emplace(std::filesystem::absolute(path).lexically_normal(), option);
    if (!is_new) {
      throw Error(ErrorClass::kUsage, str(same->second, " and ", option, " are both '", path, "'"), "give two names");
    }
    if (config.is_forecast() && option != "--out") {
      throw Error(ErrorClass::kUsage,
                  str(option, " is '", path, "', but the model is no classifier: it has no classes"),
                  "vit_hybrid forecast writes the fields that such a model predicts");
    }
    check_output(path, option, use.overwrite, config.data, checkpoint);
  }
}

// Only predictions can do without.
void require_labels(const DataConfig& config, const DataSource& data, const ModelUse& use,
                    const PredictionOptions& predictions) {
  const std::string option = !use.out.empty() ? "--out" : !predictions.confusion.empty() ? "--confusion" : "";
  if (!data.has_labels && !option.empty()) {
    throw Error(ErrorClass::kUsage,
                str(option, " needs labels, and ", config.valid_data, " has no dataset '", config.labels_name, "'"),
                "leave the option out, or name the labels with --labels-name");
  }
}

// What an evaluation of a classifier gives beside its figures; nothing of a forecast.
class ClassifierOutput {
 public:
  /// `names` of the classes, with commas between them, or empty. `self`: this rank alone. The file is made now: what
  /// cannot be written is refused before the work. Collective over `world`, errors agreed.
  ClassifierOutput(const model::VitOptions& model, const DataSource& data, const std::string& names,
                   const PredictionOptions& options, const comm::MpiGroup& self, const comm::MpiGroup& world)
      : options_(options), has_labels_(data.has_labels), confusion_(class_names(names, model.num_classes)) {
    if (model.task == model::Task::kForecast) {
      return;
    }
    const int64_t classes = model.num_classes;
    options_.top = std::min(options.top, classes);
    comm::agreed_on_rank_0(world, [&] {
      if (!options_.path.empty()) {
        file_ = make_prediction_file(options_, class_names(names, classes), data.num_valid_samples, self);
      }
    });
    // Without a file only the class counts.
    predictions_.emplace(classes, options_.path.empty() ? 1 : options_.top, world, [this](const PredictedStep& step) {
      confusion_.add(step);
      if (file_ != nullptr) {
        file_->write(step);
      }
    });
  }

  /// Null of a forecast.
  ClassPredictions* predictions() { return predictions_ ? &*predictions_ : nullptr; }
  std::vector<std::string> lines() const {
    return predictions_ && has_labels_ ? confusion_.lines() : std::vector<std::string>();
  }
  /// Ends the files. For rank 0.
  void finish() {
    if (file_ != nullptr) {
      file_->finish();
    }
    if (!options_.confusion.empty()) {
      confusion_.write(options_.confusion);
    }
  }

 private:
  PredictionOptions options_;
  bool has_labels_;
  ConfusionMatrix confusion_;
  std::unique_ptr<PredictionFile> file_;  // on rank 0
  std::optional<ClassPredictions> predictions_;
};

}  // namespace

void refuse_inputs(const std::string& path, const std::string& option, const DataConfig& data,
                   const std::string& checkpoint) {
  std::vector<std::string> inputs = {checkpoint, data.valid_data, data.global_means, data.global_stds, data.time_means};
  for (const char* const name : {"global_means.npy", "global_stds.npy", "time_means.npy", "climatology.nc"}) {
    inputs.push_back(data.stats + "/" + name);
  }
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(data.valid_data, ignored);
  if (is_folder) {
    const std::vector<std::string> files = data::list_weather_files(data.valid_data);
    inputs.insert(inputs.end(), files.begin(), files.end());
  }
  for (const std::string& input : inputs) {
    refuse_input(path, option, input);
  }
  refuse_run_file(path, option);
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::filesystem::path whole = std::filesystem::weakly_canonical(parent.empty() ? "." : parent, ignored);
  for (std::filesystem::path above = whole; above != above.parent_path(); above = above.parent_path()) {
    const auto is_above = [&](const std::string& input) {
      return data::is_zarr_store(input) && std::filesystem::equivalent(above, input, ignored);
    };
    if (const auto store = std::find_if(inputs.begin(), inputs.end(), is_above); store != inputs.end()) {
      throw Error(ErrorClass::kUsage,
                  str(option, " is '", path, "', which would be a part of the data's store ", *store),
                  "give a name in another folder");
    }
  }
  if (is_folder && (data::has_hdf5_name(path) || is_store_name(path)) &&
      std::filesystem::equivalent(parent.empty() ? "." : parent, data.valid_data, ignored)) {
    throw Error(ErrorClass::kUsage,
                str(option, " is '", path, "', which would be one of the data's files in ", data.valid_data),
                "give a name in another folder");
  }
}

void check_output(const std::string& path, const std::string& option, bool overwrite, const DataConfig& data,
                  const std::string& checkpoint) {
  refuse_inputs(path, option, data, checkpoint);
  refuse_existing(path, overwrite, option);
  require_folder_of(path, option);
}

Evaluation evaluate(const RunConfig& config, const ModelUse& use, const CheckpointReader& checkpoint,
                    const comm::MpiGroup& world, const PredictionOptions& predictions) {
  comm::agreed_on_rank_0(world, [&] { check_outputs(config, use, predictions, checkpoint.path()); });
  const LabelUse labels = predictions.path.empty() ? LabelUse::kNeeded : LabelUse::kOptional;
  const CheckpointInfo& trained = checkpoint.info();
  const DataSource data = open_valid_data(config.model, config.data, trained, world, labels);
  comm::agreed(world, [&] {
    require_trained_data(trained, checkpoint.path(), data.described, config.data.valid_data);
    require_labels(config.data, data, use, predictions);
  });
  const std::string& names = trained.class_names.empty() ? data.described.class_names : trained.class_names;
  const comm::MpiGroup self = comm::MpiGroup::alone();
  ClassifierOutput classes(config.model, data, names, predictions, self, world);
  LossFields fields = loss_fields(*data.valid, data.described);
  fields.grid = data::joined_grid(data.described.grid, trained.grid);
  const model::FieldWeights weights = loss_weights(config.loss, config.model, config.data.stats, world, fields);
  TrainedModel model(config, config.data, checkpoint, world);
  model.runner().set_loss_weights(weights);
  announce(config.name, config, checkpoint, model.mesh().device());
  log_line(str("  input     ", data.text));
  warn_of_use(config.data, checkpoint, data.described);
  const Timer timer;
  Evaluator evaluator(config, config.data, model.mesh(), model.runner(), *data.valid, data.num_valid_samples,
                      data.climatology, data::joined_grid(data.described.grid, trained.grid), data.increments);
  Evaluation figures = evaluator.evaluate(classes.predictions());
  const double seconds = timer.seconds();
  if (!data.has_labels) {
    const int64_t samples = std::exchange(figures, Evaluation()).samples;
    figures.samples = samples;
  }
  auto lines = data.has_labels ? table_lines(figures, data.valid->channel_names())
                               : std::vector{str(figures.samples, " samples, no labels: predictions alone")};
  const auto of_classes = classes.lines();
  lines.insert(lines.end(), of_classes.begin(), of_classes.end());
  log_lines(lines);
  log_line(str("evaluated in ", fixed_text(seconds, 2), " s, ",
               fixed_text(static_cast<double>(figures.samples) / seconds, 2), " samples/s"));
  comm::agreed_on_rank_0(world, [&] {
    if (!use.out.empty()) {
      write(config, use, checkpoint, data, figures);
    }
    classes.finish();
  });
  for (const std::string& path : {use.out, predictions.path, predictions.confusion}) {
    if (!path.empty()) {
      log_line("wrote " + path);
    }
  }
  return figures;
}

}  // namespace vit_hybrid::train
