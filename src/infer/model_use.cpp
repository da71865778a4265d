// Which options count, their merging with the checkpoint's, and the model's start on all ranks.
#include "src/infer/model_use.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "model/vit_parameters.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/failure.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/checkpoint/slice_reader.h"
#include "src/config/run_options.h"
#include "src/config/sources.h"
#include "src/machine/autotune.h"
#include "src/machine/device.h"
#include "src/report/start_report.h"

namespace vit_hybrid::train {

namespace {

using Names = std::initializer_list<const char*>;

constexpr Names kAlways = {"dp",
                           "tp",
                           "pp",
                           "order",
                           "device",
                           "ranks-per-gpu",
                           "threads",
                           "timeout",
                           "precision",
                           "deterministic",
                           "retune",
                           "stats",
                           "global-means",
                           "global-stds",
                           "time-means",
                           "dataset-name",
                           "channels",
                           "variables",
                           "static-data",
                           "valid-dates",
                           "loss-latitude-weights",
                           "loss-channel-weights"};
// The data of a forecast are a few states, read one by one.
constexpr Names kForBatches = {
    "micro-batch-size", "valid-batch-size", "valid-resize", "labels-name", "io",         "io-threads",
    "prefetch-depth",   "stage-data",       "stage-dir",    "mpiio-hints", "pin-memory",
};

// What of the training still holds when its model is used elsewhere.
constexpr Names kFromCheckpoint = {"name",
                                   "seed",
                                   "precision",
                                   "global-batch-size",
                                   "global-means",
                                   "global-stds",
                                   "time-means",
                                   "dataset-name",
                                   "labels-name",
                                   "interpolation",
                                   "stats",
                                   "valid-resize",
                                   "channels",
                                   "variables",
                                   "history",
                                   "forcings",
                                   "diagnostics",
                                   "static",
                                   "static-data",
                                   "loss-latitude-weights",
                                   "loss-channel-weights"};

// Those of them whose help does not tell where else they come from.
constexpr Names kShownAsTraining = {"precision",  "stats",     "labels-name",           "valid-resize",
                                    "channels",   "variables", "loss-latitude-weights", "loss-channel-weights",
                                    "static-data"};

bool is_among(Names names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The entries whose option is known and `counts(name, text)`.
template <class Counts>
options::Source kept(const options::OptionTable& table, options::Source source, const Counts& counts) {
  std::erase_if(source, [&](const options::Entry& entry) {
    const options::Option* const option = table.find(entry.name);
    return option == nullptr || !counts(option->name, entry.text);
  });
  return source;
}

void refuse(const std::vector<std::string>& problems) {
  if (!problems.empty()) {
    throw Error(ErrorClass::kUsage, options::problem_list(problems));
  }
}

// The batch that micro-batches are cut from. Where it has fewer samples than there are replicas, some have none, which
// only costs their time.
void fit_batch(RunConfig& config, int world_size) {
  const int64_t batch = config.data.valid_batch_size > 0 ? config.data.valid_batch_size : config.global_batch_size;
  const int replicas =
      config.parallel.dp > 0 ? config.parallel.dp : world_size / std::max(config.parallel.model_size(), 1);
  config.data.valid_batch_size = batch;
  config.global_batch_size = std::max<int64_t>(batch, replicas);
}

void check_stored_grid(const CheckpointInfo& checkpoint, const model::VitOptions& model, const std::string& path) {
  const auto fits = [](const std::vector<double>& points, int64_t count) {
    return points.empty() || std::ssize(points) == count;
  };
  if (!fits(checkpoint.grid.latitudes, model.image_height) || !fits(checkpoint.grid.longitudes, model.image_width)) {
    throw Error(ErrorClass::kBadData,
                str(path, " has ", data::grid_text(checkpoint.grid), ", its model takes fields of ", model.image_height,
                    " x ", model.image_width),
                "it is damaged: use another checkpoint");
  }
}

// Whether the command line names one of these options.
bool gives(const options::OptionTable& table, const options::Source& overrides, Names names) {
  return !kept(table, overrides, [&](const std::string& name, const std::string&) {
            return is_among(names, name);
          }).empty();
}

}  // namespace

void add_use_options(options::OptionTable& table, ModelUse& use, const std::string& out_help) {
  table.begin_group("General");
  table.add({.name = "checkpoint",
             .value = options::text(use.checkpoint, "path"),
             .help = "Checkpoint with the model: a file, or a folder with 'latest' in it. Must be given."});
  table.add({.name = "data",
             .value = options::text(use.data, "path"),
             .help = "Data: a Zarr store, or a folder of HDF5 or NetCDF-4 files or of stores (forecast), or one HDF5 "
                     "file (classify). "
                     "Must be given."});
  table.add({.name = "out", .value = options::text(use.out, "file"), .help = out_help});
  table.add({.name = "overwrite",
             .value = options::flag(use.overwrite),
             .help = "Replace files of the same names that are there."});
}

void add_run_options(options::OptionTable& table, RunConfig& config, UsePurpose purpose) {
  RunRequest request;  // of options that are not taken
  const options::OptionTable all = run_option_table(config, request);
  for (options::Option option : all.options()) {
    const bool for_batches = purpose == UsePurpose::kEvaluation && is_among(kForBatches, option.name);
    if (is_among(kAlways, option.name) || for_batches) {
      table.begin_group(option.group);
      if (is_among(kShownAsTraining, option.name)) {
        option.value.print = [] { return std::string("the training's"); };
      }
      table.add(std::move(option));
    }
  }
}

RunConfig config_for_use(const CheckpointInfo& checkpoint, const std::string& path, const std::string& data,
                         const options::Source& overrides, int world_size) {
  RunConfig config;
  RunRequest request;
  const options::OptionTable table = run_option_table(config, request);
  options::Settings settings(table);
  if (!checkpoint.config.empty()) {
    for (const options::Source& source : options::parse_yaml({path, ""}, checkpoint.config)) {
      // A path that was not given is none.
      settings.add(kept(table, source, [](const std::string& name, const std::string& text) {
        return is_among(kFromCheckpoint, name) && !text.empty();
      }));
    }
  }
  // The rest of a command line is the command's own.
  settings.add(kept(table, overrides, [](const std::string& name, const std::string&) {
    return is_among(kAlways, name) || is_among(kForBatches, name);
  }));
  settings.apply_all();
  refuse(settings.problems());
  config.model = model_from_json(checkpoint.model);
  config.data.kind = DataKind::kHdf5;
  config.data.train_data = config.data.valid_data = data;
  fit_batch(config, world_size);
  resolve(config, world_size);
  check_stored_grid(checkpoint, config.model, path);
  RunConfig checked = config;
  if (!checkpoint.means.empty() && !gives(table, overrides, {"stats", "global-means", "global-stds"})) {
    // The checkpoint knows them better than files that may be others by now. The folder stays, for a climatology.
    config.data.global_means.clear();
    config.data.global_stds.clear();
    checked.data.global_means = checked.data.global_stds = path;  // there is nothing to ask for
  }
  refuse(problems(checked, world_size));
  return config;
}

bool has_time_means_of_training(const DataConfig& data, const options::Source& overrides) {
  RunConfig ignored;
  RunRequest request;
  return !data.time_means.empty() && !gives(run_option_table(ignored, request), overrides, {"stats", "time-means"});
}

std::vector<std::string> missing_paths(const RunConfig& config) {
  RunConfig asked = config;
  asked.data.valid_data.clear();  // the same as train_data
  if (config.data.global_means.empty()) {
    asked.data.stats.clear();  // nothing must be there
  }
  std::vector<std::string> out = path_problems(asked);
  for (std::string& problem : out) {
    constexpr std::string_view kName = "--train-data";
    if (problem.starts_with(kName)) {
      problem.replace(0, kName.size(), "--data");
    }
  }
  return out;
}

namespace {

mesh::DeviceMesh make_mesh(const StepConfig& config, const DataConfig& data, const CheckpointReader& checkpoint,
                           const comm::MpiGroup& world) {
  const ParallelConfig& parallel = config.parallel;
  const c10::Device device = set_up_machine(config, data, ModelPurpose::kUse, world).device;
  if (device.is_cpu()) {
    choose_host_kernel(config, kernels::HostLayer::Passes::kForward, checkpoint.info().kernels, world);
  }
  return {parallel_dims(parallel), world, device, transport_options(parallel)};
}

}  // namespace

TrainedModel::TrainedModel(const StepConfig& config, const DataConfig& data, const CheckpointReader& checkpoint,
                           const comm::MpiGroup& world)
    : mesh_(make_mesh(config, data, checkpoint, world)),
      runner_(config.model, precision_policy(config.precision), mesh_, std::nullopt) {
  comm::agreed(world,
               [&] { load_parameters(checkpoint, runner_.parameters().specs(), runner_.parameters(), mesh_.model()); });
}

void warn_of_use(const DataConfig& config, const CheckpointReader& checkpoint, const TrainingData& given) {
  const CheckpointInfo& trained = checkpoint.info();
  if (const auto line = earlier_format_line(checkpoint)) {
    log_line("  note      " + *line);
  }
  if (const std::string difference = statistics_difference(trained, given); !difference.empty()) {
    log_warning(str("the statistics of ", config.global_means, " and ", config.global_stds,
                    " are used, which are not those of the training: ", difference));
  }
  if (trained.lead.hours > 0.0 && given.lead.rows > 0 && given.lead.hours == 0.0) {
    log_warning(str("the data do not name their times: the model predicts ", data::lead_text(trained.lead),
                    " ahead, and so many rows are taken"));
  }
  if (const std::string doubt = doubt_of_rows(trained, given.grid); !doubt.empty()) {
    log_warning(doubt);
  }
  if (trained.format >= kTrainingDataFormat && trained.class_names.empty() != given.class_names.empty()) {
    log_warning(given.class_names.empty()
                    ? str("the data name no classes: their numbers are taken for those of ", shown(trained.class_names))
                    : "the checkpoint names no classes: the data's numbers are taken for its own");
  }
}

void announce(const std::string& name, const StepConfig& config, const CheckpointReader& checkpoint,
              c10::Device device) {
  const ParallelConfig& parallel = config.parallel;
  const CheckpointInfo& info = checkpoint.info();
  log_line(str(name, ": ", model::num_parameters(config.model), " parameters of ", checkpoint.path(), " (step ",
               info.step, ", ", info.epoch, " epochs), dp ", parallel.dp, " x tp ", parallel.tp, " x pp ", parallel.pp,
               " on ", device.str(), ", ", counted(at::get_num_threads(), "thread"), " a rank"));
  log_lines(report_kernels(config, device, ModelPurpose::kUse).lines());
}

}  // namespace vit_hybrid::train
