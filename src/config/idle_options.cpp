// idle_options(): one table of what options need.
#include "src/config/idle_options.h"

#include "src/base/device/gpu_survey.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

bool reads_files(const RunConfig& config) {
  return config.data.kind == DataKind::kHdf5;
}
bool reads_fields(const RunConfig& config) {
  return reads_files(config) && config.is_forecast();
}
bool reads_images(const RunConfig& config) {
  return reads_files(config) && !config.is_forecast();
}
bool generates(const RunConfig& config) {
  return !reads_files(config);
}
bool forecasts(const RunConfig& config) {
  return config.is_forecast();
}
bool classifies(const RunConfig& config) {
  return !config.is_forecast();
}
bool validates(const RunConfig& config) {
  const DataConfig& data = config.data;
  return config.test_steps == 0 && (reads_files(config) ? !data.valid_data.empty() : data.generated_valid_samples > 0);
}
bool has_replicas(const RunConfig& config) {
  return config.parallel.dp != 1;  // 0: not known yet
}
bool has_axes(const RunConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  return int{parallel.dp != 1} + int{parallel.tp > 1} + int{parallel.pp > 1} > 1;
}
bool has_micro_batches(const RunConfig& config) {
  return config.parallel.dp == 0 || config.parallel.pp > 1 || config.num_micro_batches() > 1;
}
bool may_use_gpus(const RunConfig& config) {
  return config.device != DeviceChoice::kCpu && is_built_with_cuda();
}
bool measures_kernels(const RunConfig& config) {
  return may_use_gpus(config) || !config.deterministic;
}
bool stages(const RunConfig& config) {
  return config.data.stage != StageData::kNone;
}
bool saves(const RunConfig& config) {
  return config.checkpoint.keep > 0;
}
bool uses_checkpoints(const RunConfig& config) {
  return saves(config) || config.checkpoint.resumes_own_run();
}
bool falls_to_min_lr(const RunConfig& config) {
  const LrSchedule::Kind kind = config.schedule.kind;
  return kind == LrSchedule::Kind::kCosine || kind == LrSchedule::Kind::kLinear || kind == LrSchedule::Kind::kWsd;
}
bool has_cool_down(const RunConfig& config) {
  return config.schedule.kind == LrSchedule::Kind::kWsd;
}
bool scales_lr(const RunConfig& config) {
  return config.schedule.scaling != LrScaling::kNone;
}
bool treats_vectors(const RunConfig& config) {
  const OptimizerKind kind = config.optimizer.kind;
  return config.optimizer.weight_decay > 0.0 || kind == OptimizerKind::kLamb || kind == OptimizerKind::kLars;
}
bool names_no_folder(const RunConfig& config) {
  return config.run_dir.empty();
}

struct Need {
  const char* option;
  bool (*is_met)(const RunConfig& config);
  const char* text;
};

// In the order of docs/options.md. What would train on something else than was asked for is refused instead
// (run_config_check.cpp).
constexpr Need kNeeds[] = {
    {"runs-root", names_no_folder, "--run-dir names the folder"},
    {"order", has_axes, "it orders two or more of --dp, --tp and --pp above 1"},
    {"zero", has_replicas, "--dp is 1, and there is nobody to share with"},
    {"schedule", has_micro_batches, "there is one stage and one micro-batch"},
    {"bucket-mb", has_replicas, "--dp is 1, and no gradients are reduced"},
    {"retune", measures_kernels, "with --deterministic a CPU takes its usual kernels, without measuring"},
    {"cuda-graph", may_use_gpus, "it is for GPUs, and the run uses none"},
    {"ranks-per-gpu", may_use_gpus, "it is for GPUs, and the run uses none"},
    {"out-channels", forecasts, "it is for --task forecast"},
    {"num-classes", classifies, "it is for --task classify"},
    {"pooling", classifies, "it is for --task classify"},
    {"label-smoothing", classifies, "it is for --task classify"},
    {"lr-batch-size", scales_lr, "it is for --lr-scaling sqrt"},
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
    {"labels-name", reads_images, "it is for HDF5 files of --task classify"},
    {"limit-nsamples-val", validates, "there is no validation"},
    {"valid-batch-size", validates, "there is no validation"},
    {"io", reads_files, "no HDF5 files are read"},
    {"stage-dir", stages, "--stage-data is none"},
    {"interpolation", reads_images, "it is for HDF5 files of --task classify"},
    {"valid-resize", reads_images, "it is for HDF5 files of --task classify"},
    {"generated-samples", generates, "HDF5 files are read and no data generated"},
    {"generated-valid-samples", generates, "HDF5 files are read and no data generated"},
    {"checkpoint-async", saves, "no checkpoint is saved"},
    {"checkpoint-dir", uses_checkpoints, "no checkpoint is saved"},
};

bool is_given_for_this_run(const RunConfig& config, const char* option) {
  const auto origin = config.origin.find(option);
  return origin != config.origin.end() &&
         (origin->second == "command line" || origin->second.starts_with("environment "));
}

}  // namespace

std::vector<std::string> idle_options(const RunConfig& config) {
  std::vector<std::string> out;
  for (const Need& need : kNeeds) {
    if (is_given_for_this_run(config, need.option) && !need.is_met(config)) {
      out.push_back(str("--", need.option, " has no effect here: ", need.text));
    }
  }
  return out;
}

}  // namespace vit_hybrid::train
