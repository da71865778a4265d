// From the sources to a resolved configuration; one table of what options need to have an effect.
#include "src/config/load_run_config.h"
#include "parallel/comm/agreement.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "src/base/device/gpu_survey.h"
#include "src/base/files.h"
#include "src/base/text.h"
#include "src/config/model_options.h"
#include "src/config/sources.h"

namespace vit_hybrid::train {

namespace {

// An option, and whether it has an effect; if not, why.
struct Need {
  const char* option;
  bool is_met;
  const char* why_not;
};

// In the order of docs/options.md. What would train on something else than was asked for is refused instead
// (run_config_check.cpp).
std::vector<Need> needs_of(const RunConfig& config) {
  const DataConfig& data = config.data;
  const ParallelConfig& parallel = config.parallel;
  const LrSchedule::Kind lr_kind = config.schedule.kind;
  const OptimizerKind optimizer = config.optimizer.kind;
  const bool forecasts = config.is_forecast();
  const bool classifies = !forecasts;
  const bool reads_files = data.kind == DataKind::kHdf5;
  const bool reads_fields = reads_files && forecasts;
  const bool reads_images = reads_files && classifies;
  const bool validates = config.find_lr == 0 && data.has_validation();
  const bool has_replicas = parallel.dp != 1;  // 0: not known yet
  const bool has_axes = int{has_replicas} + int{parallel.tp > 1} + int{parallel.pp > 1} > 1;
  const bool has_micro_batches = parallel.dp == 0 || parallel.pp > 1 || config.num_micro_batches() > 1;
  const bool may_use_gpus =
      config.device == DeviceChoice::kCuda || (config.device != DeviceChoice::kCpu && is_built_with_cuda());
  const bool measures_kernels = may_use_gpus || !config.deterministic;
  const bool saves = config.checkpoint.keep > 0;
  const bool uses_checkpoints = saves || config.checkpoint.resumes_own_run();
  const bool has_cool_down = lr_kind == LrSchedule::Kind::kWsd;
  const bool falls_to_min_lr =
      has_cool_down || lr_kind == LrSchedule::Kind::kCosine || lr_kind == LrSchedule::Kind::kLinear;
  const bool treats_vectors =
      config.optimizer.weight_decay > 0.0 || optimizer == OptimizerKind::kLamb || optimizer == OptimizerKind::kLars;
  const char* const tp_overlap_needs =
      parallel.tp > 1 ? "--micro-batch-size is 1, and a sample is not cut" : "--tp is 1, and there are no sums to hide";
  return {
      {"runs-root", config.run_dir.empty(), "--run-dir names the folder"},
      {"order", has_axes, "it orders two or more of --dp, --tp and --pp above 1"},
      {"tp-overlap", !parallel.tp_overlap || (parallel.micro_batch_parts() > 1 && parallel.micro_batch_size != 1),
       tp_overlap_needs},
      {"zero", has_replicas, "--dp is 1, and there is nobody to share with"},
      {"zero-shard-size", parallel.zero > 0, "--zero is 0, and each rank keeps all of the optimizer state"},
      {"schedule", has_micro_batches, "there is one stage and one micro-batch"},
      {"bucket-mb", has_replicas, "--dp is 1, and no gradients are reduced"},
      {"dp-max-ctas", has_replicas, "--dp is 1, and no gradients are reduced"},
      {"communication-thread", config.device != DeviceChoice::kCuda, "it is for CPUs: NCCL moves messages by itself"},
      {"retune", measures_kernels, "with --deterministic a CPU takes its usual kernels, without measuring"},
      {"cuda-graph", may_use_gpus, "it is for GPUs, and the run uses none"},
      {"ranks-per-gpu", may_use_gpus, "it is for GPUs, and the run uses none"},
      {"dt", reads_fields, "it is for HDF5 files of --task forecast"},
      {"dt-hours", reads_fields, "it is for HDF5 files of --task forecast"},
      {"out-channels", forecasts, "it is for --task forecast"},
      {"num-classes", classifies, "it is for --task classify"},
      {"pooling", classifies, "it is for --task classify"},
      {"loss", forecasts, "it is for --task forecast"},
      {"loss-latitude-weights", forecasts, "it is for --task forecast"},
      {"loss-channel-weights", forecasts, "it is for --task forecast"},
      {"label-smoothing", classifies, "it is for --task classify"},
      {"lr", config.find_lr == 0, "--find-lr chooses the rates"},
      {"lr-schedule", config.find_lr == 0, "--find-lr chooses the rates"},
      {"lr-batch-size", config.schedule.scaling != LrScaling::kNone, "it is for --lr-scaling sqrt and linear"},
      {"min-lr", falls_to_min_lr, "it is for --lr-schedule cosine, linear and wsd"},
      {"decay-share", has_cool_down, "it is for --lr-schedule wsd"},
      {"decay-vectors", treats_vectors, "it needs --weight-decay, or --optimizer lamb or lars"},
      {"train-data", reads_files, "no files are read"},
      {"valid-data", reads_files, "no files are read"},
      {"stats", reads_fields, "it is for HDF5 files of --task forecast"},
      {"global-means", reads_fields, "it is for HDF5 files of --task forecast"},
      {"global-stds", reads_fields, "it is for HDF5 files of --task forecast"},
      {"time-means", reads_fields, "it is for HDF5 files of --task forecast"},
      {"dataset-name", reads_files, "no HDF5 files are read"},
      {"train-dates", reads_fields, "it is for HDF5 files of --task forecast"},
      {"valid-dates", reads_fields, "it is for HDF5 files of --task forecast"},
      {"channels", reads_fields, "it is for HDF5 files of --task forecast"},
      {"history", reads_fields, "it is for HDF5 files of --task forecast"},
      {"forcings", reads_fields, "it is for HDF5 files of --task forecast"},
      {"diagnostics", reads_fields, "it is for HDF5 files of --task forecast"},
      {"static", reads_fields, "it is for HDF5 files of --task forecast"},
      {"static-data", reads_fields && !data.roles.statics.empty(), "no --static field is asked for"},
      {"target", forecasts, "it is for --task forecast"},
      {"variables", reads_fields, "it is for HDF5 files of --task forecast"},
      {"labels-name", reads_images, "it is for HDF5 files of --task classify"},
      {"limit-nsamples-val", validates, "there is no validation"},
      {"valid-batch-size", validates, "there is no validation"},
      {"io", reads_files, "no HDF5 files are read"},
      {"stage-dir", data.stage != StageData::kNone, "--stage-data is none"},
      {"interpolation", reads_images, "it is for HDF5 files of --task classify"},
      {"valid-resize", reads_images, "it is for HDF5 files of --task classify"},
      {"generated-samples", !reads_files, "HDF5 files are read and no data generated"},
      {"generated-valid-samples", !reads_files, "HDF5 files are read and no data generated"},
      {"checkpoint-async", saves, "no checkpoint is saved"},
      {"checkpoint-dir", uses_checkpoints, "no checkpoint is saved"},
  };
}

using options::Entry;
using options::OptionTable;
using options::Settings;
using options::Source;

// Takes the --config entries out of the command line and into the request.
Source take_config_files(const OptionTable& table, Source source) {
  Source rest;
  for (Entry& entry : source) {
    if (options::canonical_name(entry.name) == "config") {
      table.find("config")->value.parse(entry.text);
    } else {
      rest.push_back(std::move(entry));
    }
  }
  return rest;
}

bool names_data(const OptionTable& table, const Source& source) {
  return std::any_of(source.begin(), source.end(), [&](const Entry& entry) {
    const options::Option* option = table.find(entry.name);
    return option != nullptr && (option->name == "data" || option->name == "train-data");
  });
}

std::vector<Source> sources_of_files(const RunRequest& request, const ReadFile& read_file) {
  std::vector<Source> out;
  for (const std::string& text : request.config_files) {
    const auto path = options::split_config_path(text);
    const auto of_file = options::parse_yaml(path, read_file(path.file));
    out.insert(out.end(), of_file.begin(), of_file.end());
  }
  return out;
}

void apply_preset(RunConfig& config, const Settings& settings, const OptionTable& table) {
  const Entry* entry = settings.find("preset");
  if (entry == nullptr || !table.find("preset")->value.parse(entry->text) || config.preset.empty()) {
    return;  // apply_all() says what is wrong with it
  }
  config.model = model::preset(config.preset);
  for (const std::string& name : table.find("preset")->forgets) {
    config.origin[name] = "preset " + config.preset;
  }
}

// The input of a classifier that names no preset: the usual crop of a colour picture.
void follow_classifier(RunConfig& config, const Settings& settings) {
  const model::VitOptions usual = model::preset("vit-s16");
  if (settings.find("image-size") == nullptr) {
    config.model.image_height = usual.image_height;
    config.model.image_width = usual.image_width;
    config.origin["image-size"] = "task";
  }
  if (settings.find("in-channels") == nullptr) {
    config.model.in_channels = usual.in_channels;
    config.origin["in-channels"] = "task";
  }
}

// Values that follow another one which was given, where they themselves were not.
void derive(RunConfig& config, const Settings& settings) {
  model::VitOptions& model = config.model;
  const auto follows = [&](const char* name, const char* other, const char* origin) {
    const bool does = settings.find(name) == nullptr && settings.find(other) != nullptr;
    if (does) {
      config.origin[name] = origin;
    }
    return does;
  };
  if (follows("mlp-hidden", "embed-dim", "4 x embed-dim")) {
    model.mlp_hidden = 4 * model.embed_dim;
  }
  if (!config.is_forecast() && config.preset.empty()) {
    follow_classifier(config, settings);
  }
  if (follows("out-channels", "in-channels", "in-channels")) {
    model.out_channels = model.in_channels;
  }
  if (follows("attention-dropout", "dropout", "dropout")) {
    model.attention_dropout = model.dropout;
  }
  if (follows("steps", "epochs", "epochs is given")) {
    config.schedule.steps = 0;
  }
}

void note_origins(LoadedConfig& loaded, const OptionTable& table, const Settings& settings) {
  for (const options::Option& option : table.options()) {
    if (const Entry* entry = settings.find(option.name)) {
      loaded.config.origin[option.name] = entry->origin;
      if (entry->place != options::Place::kProgram) {
        loaded.given.insert(option.name);
      }
    }
  }
}

// What the sources say, but for what follows from it.
void merge(const std::vector<Source>& sources, const OptionTable& table, RunConfig& config, Settings& settings) {
  for (const Source& source : sources) {
    settings.add(source);
  }
  apply_preset(config, settings, table);
  settings.apply_all();
}

// Whose built-in default the sources are given over: that of weather, that of images, or none, where other data than
// built-in ones are asked for.
std::optional<model::Task> task_of_builtin(const std::vector<Source>& sources, bool is_nothing_given) {
  RunConfig draft;
  RunRequest request;
  const OptionTable table = run_option_table(draft, request);
  Settings settings(table);
  merge(sources, table, draft, settings);
  const bool is_builtin = is_nothing_given || draft.data.kind == DataKind::kBuiltin;
  return is_builtin ? std::optional(draft.model.task) : std::nullopt;
}

void name_run(LoadedConfig& loaded) {
  if (!loaded.config.name.empty()) {
    return;
  }
  if (!loaded.request.config_files.empty()) {
    const auto path = options::split_config_path(loaded.request.config_files.back());
    loaded.config.name = path.section.empty() ? std::filesystem::path(path.file).stem().string() : path.section;
  } else if (loaded.config.is_builtin_default) {
    loaded.config.name = "builtin";
  }
}

}  // namespace

std::string read_local_file(const std::string& path) {
  try {
    return read_regular_file(path, options::kMostYamlBytes);
  } catch (const Error& error) {
    if (error.error_class() != ErrorClass::kMissingInput) throw;
    throw Error(error.error_class(), error.message(),
                "a configuration is given as --config FILE[:SECTION], a machine's rates as --machine FILE");
  }
}

std::string read_for_all(const comm::MpiGroup& world, const std::string& path) {
  std::string content;
  comm::agreed_on_rank_0(world, [&] { content = read_local_file(path); });
  return world.broadcast(content, 0);
}

LoadedConfig load_run_config(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                             const ReadFile& read_file) {
  LoadedConfig loaded;
  RunConfig& config = loaded.config;
  const OptionTable table = run_option_table(config, loaded.request);
  const Source command_line = take_config_files(table, options::parse_command_line(table, words));
  const Source variables = options::parse_environment(environment);
  config.is_builtin_default =
      loaded.request.config_files.empty() && !names_data(table, command_line) && !names_data(table, variables);
  std::vector<Source> sources = sources_of_files(loaded.request, read_file);
  sources.push_back(variables);
  sources.push_back(command_line);
  if (const auto task = task_of_builtin(sources, config.is_builtin_default)) {
    sources.insert(sources.begin(), builtin_default(*task));
  }
  Settings settings(table);
  merge(sources, table, config, settings);
  note_origins(loaded, table, settings);
  derive(config, settings);
  name_run(loaded);
  config.unused_keys = settings.unused_keys();
  loaded.remarks = settings.remarks();
  loaded.problems = settings.problems();
  loaded.misread_options = settings.misread_options();
  return loaded;
}

std::vector<std::string> all_problems(const LoadedConfig& loaded, int world_size) {
  std::vector<std::string> out = loaded.problems;
  for (auto& problem : problems(loaded.config, world_size)) {
    const auto& misread = loaded.misread_options;
    // A value that could not be read is its default here; what follows from that is nobody's fault.
    const bool follows = std::any_of(misread.begin(), misread.end(), [&](const std::string& name) {
      return problem.find("--" + name) != std::string::npos ||
             problem.find(options::yaml_key(name)) != std::string::npos;
    });
    if (!follows) {
      out.push_back(std::move(problem));
    }
  }
  return out;
}

std::vector<std::string> all_remarks(const LoadedConfig& loaded) {
  std::vector<std::string> out = loaded.remarks;
  const RunConfig& config = loaded.config;
  if (!config.unused_keys.empty()) {
    out.push_back("keys without a meaning here, unused: " + join(config.unused_keys));
  }
  for (const Need& need : needs_of(config)) {
    if (config.precedence(need.option) > 0 && !need.is_met) {
      out.push_back(str("--", need.option, " has no effect here: ", need.why_not));
    }
  }
  if (std::string line = data_shape_line(config); !line.empty()) {
    out.push_back(std::move(line));
  }
  return out;
}

}  // namespace vit_hybrid::train
