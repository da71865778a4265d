// The checks of a RunConfig: what does not go together, with what would.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <tuple>

#include "data/generate/generate_images.h"
#include "src/base/error.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/config/field_options.h"
#include "src/config/run_config.h"

namespace vit_hybrid::train {

namespace {

using Problems = std::vector<std::string>;

constexpr size_t kMostChoices = 6;
constexpr size_t kLongestPath = 4096;
constexpr int64_t kMostMicroBatches = 1 << 20;

struct Layout {
  int dp, tp, pp;
};

// All layouts of `world_size` ranks that the model allows, the nearest to the wanted tp and pp first.
std::vector<Layout> valid_layouts(const RunConfig& config, int world_size) {
  std::vector<Layout> layouts;
  const auto most_tp = std::min<int64_t>(world_size, std::min(config.model.num_heads, config.model.mlp_hidden));
  for (int tp = 1; tp <= most_tp; ++tp) {
    const auto most_pp = std::min<int64_t>(world_size / tp, config.model.num_units());
    for (int pp = 1; pp <= most_pp; ++pp) {
      if (world_size % (tp * pp) == 0) {
        layouts.push_back({world_size / (tp * pp), tp, pp});
      }
    }
  }
  const auto distance = [&](const Layout& layout) {
    const auto steps = [](int a, int b) { return std::abs(std::log2(a) - std::log2(std::max(b, 1))); };
    return std::tuple(steps(layout.tp, config.parallel.tp) + steps(layout.pp, config.parallel.pp), layout.tp);
  };
  std::sort(layouts.begin(), layouts.end(),
            [&](const Layout& a, const Layout& b) { return distance(a) < distance(b); });
  layouts.resize(std::min(layouts.size(), kMostChoices));
  return layouts;
}

std::string choices_text(const RunConfig& config, int world_size) {
  const auto layouts = valid_layouts(config, world_size);
  if (layouts.empty()) {
    return "no layout of this model";
  }
  std::vector<std::string> texts;
  for (const Layout& layout : layouts) {
    texts.push_back(str(layout.dp, "x", layout.tp, "x", layout.pp));
  }
  return "dp x tp x pp = " + join(texts, " or ");
}

std::string ranks_text(int count) {
  return count == 1 ? "is 1 rank" : str("are ", count, " ranks");
}

void check_degrees(const RunConfig& config, int world_size, Problems& out) {
  const ParallelConfig& parallel = config.parallel;
  if (std::min(parallel.tp, parallel.pp) < 1 || parallel.dp < 0 || world_size == 0) {
    return;  // model::validate and the options' ranges say so
  }
  const int64_t model_size = int64_t{parallel.tp} * parallel.pp;
  if (parallel.dp == 0) {
    out.push_back(str("--tp ", parallel.tp, " x --pp ", parallel.pp, " is ", model_size, ", but there ",
                      ranks_text(world_size), ", no multiple of it; near it is ", choices_text(config, world_size)));
  } else if (parallel.dp * model_size != world_size) {
    const bool dp_can = world_size % model_size == 0;
    out.push_back(str("--dp ", parallel.dp, " x --tp ", parallel.tp, " x --pp ", parallel.pp, " is ",
                      parallel.dp * model_size, ", but there ", ranks_text(world_size), "; ",
                      dp_can ? str("give --dp ", world_size / model_size, " or --dp auto, or start ")
                             : str("near it is ", choices_text(config, world_size), "; or start "),
                      counted(static_cast<size_t>(parallel.dp * model_size), "rank")));
  }
}

void check_at_least(const char* name, int64_t value, int64_t least, Problems& out) {
  if (value < least) {
    out.push_back(str("--", name, " is ", value, "; allowed: at least ", least));
  }
}

void check_batches(const RunConfig& config, Problems& out) {
  const ParallelConfig& parallel = config.parallel;
  check_at_least("global-batch-size", config.global_batch_size, 1, out);
  check_at_least("valid-batch-size", config.data.valid_batch_size, 1, out);
  if (config.global_batch_size < 1) {
    return;
  }
  if (parallel.dp < 1) {  // not known yet
    if (config.local_batch_size > 0 && config.global_batch_size % config.local_batch_size != 0) {
      out.push_back(str("--global-batch-size ", config.global_batch_size, " is no multiple of --local-batch-size ",
                        config.local_batch_size, "; keep one of them"));
    }
    return;
  }
  const int64_t of_replicas = config.local_batch_size * parallel.dp;
  if (of_replicas > 0 && of_replicas != config.global_batch_size) {
    out.push_back(str("--local-batch-size ", config.local_batch_size, " x --dp ", parallel.dp, " is ", of_replicas,
                      ", and --global-batch-size is ", config.global_batch_size, "; keep one of them"));
    return;
  }
  if (config.global_batch_size < parallel.dp) {
    out.push_back(str("--global-batch-size is ", config.global_batch_size, ", fewer samples than the ", parallel.dp,
                      " replicas (--dp), so some would never have any; allowed: at least ", parallel.dp));
    return;
  }
  if (parallel.micro_batch_size < 1 || parallel.micro_batch_size > config.replica_batch_size()) {
    out.push_back(str("--micro-batch-size is ", parallel.micro_batch_size, "; a replica has at most ",
                      config.replica_batch_size(), " samples (--global-batch-size ", config.global_batch_size,
                      " over --dp ", parallel.dp, "); allowed: 1 to ", config.replica_batch_size()));
  } else if (config.replica_batch_size() / parallel.micro_batch_size > kMostMicroBatches) {
    out.push_back(str("--micro-batch-size ", parallel.micro_batch_size, " makes ",
                      config.replica_batch_size() / parallel.micro_batch_size, " micro-batches of a replica's ",
                      config.replica_batch_size(), " samples; allowed: at most ", kMostMicroBatches));
  }
}

void check_tp_overlap(const RunConfig& config, Problems& out) {
  if (config.parallel.micro_batch_parts() > 1 && config.recompute == model::Recompute::kFull) {
    out.push_back(
        "--tp-overlap hides no sums with --recompute full, which runs each block of a micro-batch as a whole; allowed: "
        "--recompute none or selective, or --no-tp-overlap");
  }
}

// Where a source says something else than one that gives way to it, what belongs to the latter may stay there.
bool is_overruled(const RunConfig& config, const char* option, const char* by) {
  return config.precedence(by) > config.precedence(option);
}

void check_zero_shards(const RunConfig& config, Problems& out) {
  const ParallelConfig& parallel = config.parallel;
  const int size = parallel.zero_shard_size;
  if (size == 0) {
    return;
  }
  if (parallel.zero == 0) {
    if (!is_overruled(config, "zero-shard-size", "zero")) {
      out.push_back(str("--zero-shard-size ", size,
                        " splits the optimizer state, and with --zero 0 each rank keeps all of it; give --zero 1, or "
                        "--zero-shard-size auto"));
    }
  } else if (parallel.dp > 0 && parallel.dp % size != 0) {
    out.push_back(str("--zero-shard-size is ", size, size > parallel.dp ? ", more than" : ", which does not divide",
                      " the ", parallel.dp, " ranks of --dp; allowed: a number that divides them, or auto, which is ",
                      parallel.dp));
  }
}

void check_sum_blocks(const RunConfig& config, Problems& out) {
  const ParallelConfig& parallel = config.parallel;
  const std::string& given = parallel.sum_blocks;
  const int num_ranks = parallel.dp * parallel.model_size();
  if (given != "auto" && given != "nodes" && !parse_sum_blocks(given, num_ranks)) {
    out.push_back(str("--sum-blocks is '", shown(given, kLongestPath),
                      "'; allowed: auto, nodes, or sizes from 1, with commas, that add up to the ", num_ranks,
                      " ranks"));
  }
}

void check_duration(const RunConfig& config, Problems& out) {
  const ScheduleConfig& schedule = config.schedule;
  if (schedule.steps < 1 && schedule.epochs < 1) {
    out.push_back("neither --steps nor --epochs is given; allowed: one of them, at least 1");
  }
  if (schedule.steps > 0 && schedule.epochs > 0) {
    out.push_back(str("--steps ", schedule.steps, " and --epochs ", schedule.epochs, " are both given; keep one"));
  }
  if (!(schedule.lr > 0.0) || !std::isfinite(schedule.lr)) {
    out.push_back(str("--lr is ", schedule.lr, "; allowed: a finite number, more than 0"));
  } else if (schedule.min_lr > schedule.lr) {
    out.push_back(
        str("--min-lr is ", schedule.min_lr, ", more than --lr ", schedule.lr, "; allowed: 0 to ", schedule.lr));
  }
  if (schedule.steps > 0) {
    if (std::string problem = config.lr_schedule(schedule.steps).problem(); !problem.empty()) {
      out.push_back(std::move(problem));
    }
  }
}

// Options that the chosen optimizer does not have and that are not at their default: all options are written in every
// resolved configuration.
void check_optimizer(const OptimizerConfig& config, Problems& out) {
  const OptimizerConfig standard;
  const std::string name = zero::optimizer_name(config.kind);
  const bool is_lars = config.kind == OptimizerKind::kLars;
  const bool is_sgd = config.kind == OptimizerKind::kSgd;
  const auto check = [&](bool has_it, const char* option, double value, double by_default, const char* users) {
    if (!has_it && value != by_default) {
      out.push_back(str("--", option, " ", value, " is for ", users, ", and --optimizer is ", name,
                        "; leave it at its default, ", by_default));
    }
  };
  check(!is_sgd && !is_lars, "beta1", config.beta1, standard.beta1, "adam, adamw and lamb");
  check(!is_sgd && !is_lars, "beta2", config.beta2, standard.beta2, "adam, adamw and lamb");
  check(!is_sgd && !is_lars, "eps", config.eps, standard.eps, "adam, adamw and lamb");
  check(is_sgd || is_lars, "momentum", config.momentum, standard.momentum, "sgd and lars");
  check(is_lars, "trust-coefficient", config.trust_coefficient, standard.trust_coefficient, "lars");
  if (config.nesterov && !is_sgd) {
    out.push_back(str("--nesterov is for sgd, and --optimizer is ", name, "; give --no-nesterov"));
  } else if (config.nesterov && config.momentum == 0.0) {
    out.push_back("--nesterov needs momentum, and --momentum is 0; give --momentum 0.9, or --no-nesterov");
  }
}

// Paths that nothing would read or write.
void check_unused_paths(const RunConfig& config, Problems& out) {
  const DataConfig& data = config.data;
  const bool is_generated = data.kind == DataKind::kBuiltin || data.kind == DataKind::kSynthetic;
  for (const auto& [name, path] : {std::pair("train-data", data.train_data), {"valid-data", data.valid_data}}) {
    if (is_generated && !path.empty() && !is_overruled(config, name, "data")) {
      out.push_back(str("--", name, " '", shown(path, kLongestPath), "' is given, and --data ",
                        data.kind == DataKind::kBuiltin ? "builtin" : "synthetic",
                        " makes its data in memory and reads none; give --data hdf5, or no --", name));
    }
  }
  if (data.stage == StageData::kNone && !data.stage_dir.empty() && !is_overruled(config, "stage-dir", "stage-data")) {
    out.push_back(str("--stage-dir '", shown(data.stage_dir, kLongestPath),
                      "' is where --stage-data node puts its copies, and --stage-data is none; give --stage-data node, "
                      "or no --stage-dir"));
  }
}

// The images of --data builtin.
void check_painted(const model::VitOptions& model, Problems& out) {
  constexpr const char* kPaints = "and --data builtin paints square images of 3 colours in up to ";
  if (model.image_height != model.image_width) {
    out.push_back(str("--image-size is ", model.image_height, "x", model.image_width, ", ", kPaints,
                      data::kMaxImageClasses, " classes; give one number"));
  }
  if (model.in_channels != 3) {
    out.push_back(
        str("--in-channels is ", model.in_channels, ", ", kPaints, data::kMaxImageClasses, " classes; allowed: 3"));
  }
  if (model.num_classes > data::kMaxImageClasses) {
    out.push_back(str("--num-classes is ", model.num_classes, ", ", kPaints, data::kMaxImageClasses,
                      " classes; allowed: 2 to ", data::kMaxImageClasses, ", or --data synthetic"));
  }
}

void check_data(const RunConfig& config, Problems& out) {
  const DataConfig& data = config.data;
  if (data.kind == DataKind::kAuto) {
    out.push_back("no training data is given; give --train-data PATH, or --data synthetic, or --data builtin");
  }
  if (data.kind == DataKind::kHdf5 && data.train_data.empty()) {
    out.push_back("--data hdf5 needs --train-data PATH");
  }
  if (data.kind == DataKind::kHdf5 && config.is_forecast() && (data.global_means.empty() || data.global_stds.empty())) {
    out.push_back(
        "the data's mean and standard deviation are not given; give --stats FOLDER, or --global-means FILE "
        "and --global-stds FILE");
  }
  if (data.kind == DataKind::kHdf5 && data.target == TargetKind::kIncrement && data.stats.empty()) {
    out.push_back(str("--target increment needs --stats FOLDER with ", data::kIncrementMeans, " and ",
                      data::kIncrementDeviations, ", which 'vit_hybrid data stats --increments' writes"));
  }
  if (data.kind == DataKind::kBuiltin && !config.is_forecast()) {
    check_painted(config.model, out);
  }
  if (data.stage == StageData::kNode && data.kind != DataKind::kHdf5) {
    out.push_back("--stage-data node copies HDF5 files, and none are read; allowed: none");
  }
  if (data.stage == StageData::kNode && data.io != data::IoMode::kAuto && data.io != data::IoMode::kDirect) {
    out.push_back(str("--stage-data node makes copies that are read directly; with it --io is auto or direct, not ",
                      data::io_mode_name(data.io)));
  }
  if (!data.mpiio_hints.empty() && data.io != data::IoMode::kCollective) {
    out.push_back("--mpiio-hints are for --io collective, the only way of reading that uses MPI-IO");
  }
  try {
    data::parse_mpiio_hints(data.mpiio_hints);
  } catch (const Error& error) {
    out.push_back(str("--mpiio-hints: ", error.message(), "; ", error.hint()));
  }
  if (data.pin_memory == PinMemory::kOn && config.device == DeviceChoice::kCpu) {
    out.push_back(
        "--pin-memory on page-locks batches for copies to a GPU, and --device cpu makes none; allowed: auto, off");
  }
  if (data.mixup > 0.0 && config.is_forecast()) {
    out.push_back(str("--mixup ", data.mixup, " mixes classes, and --task forecast has none; allowed: none"));
  }
  if (data.valid_resize > 0 && config.is_forecast()) {
    out.push_back(str("--valid-resize ", data.valid_resize,
                      " is for images of --task classify, and fields are never resized; allowed: auto"));
  } else if (data.valid_resize > 0 && data.valid_resize < config.model.image_height) {
    out.push_back(str("--valid-resize is ", data.valid_resize, ", less than the ", config.model.image_height,
                      " pixels that are cut from it (--image-size); allowed: auto, or at least ",
                      config.model.image_height));
  }
  if (data.drop_last && data.limit_nsamples > 0 && data.limit_nsamples < config.global_batch_size) {
    out.push_back(str("--drop-last with --limit-nsamples ", data.limit_nsamples, " leaves no whole batch of ",
                      config.global_batch_size, " samples; allowed: --no-drop-last, or a --global-batch-size of 1 to ",
                      data.limit_nsamples));
  }
}

void check_loss_weights(const RunConfig& config, Problems& out) {
  const std::string& channels = config.loss.channel_weights;
  if (channels.empty() || !config.is_forecast() || is_weights_file(channels)) {
    return;
  }
  if (channels == kIncrementWeights) {
    if (config.data.kind != DataKind::kHdf5 || config.data.stats.empty()) {
      out.push_back(str("--loss-channel-weights ", kIncrementWeights,
                        " takes time_diff_stds.npy of the data's statistics; give --stats FOLDER, as `vit_hybrid data "
                        "stats --increments` makes it"));
    }
    return;
  }
  try {
    parse_channel_weights(channels);
  } catch (const Error& error) {
    out.push_back(str("--loss-channel-weights: ", error.message(), "; ", error.hint()));
  }
}

void check_precision(const RunConfig& config, Problems& out) {
  const PrecisionConfig& precision = config.precision;
  if (precision.loss_scale > 0.0 && precision.kind != Precision::kFp16) {
    out.push_back(str("--loss-scale ", precision.loss_scale, " is for --precision fp16, and --precision is ",
                      precision_name(precision.kind),
                      ", which needs none; allowed: dynamic (which does nothing there)"));
  }
  for (const auto& [name, type] : {std::pair("grad-dtype", precision.gradient), {"reduce-dtype", precision.reduce}}) {
    if (type == GradientType::kHalf && !precision.is_half()) {
      out.push_back(str("--", name, " half is for --precision bf16 and fp16, and --precision is ",
                        precision_name(precision.kind)));
    }
  }
}

void check_checkpoints(const RunConfig& config, Problems& out) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  if (checkpoint.resumes_own_run() && config.run_dir.empty() && checkpoint.dir.empty()) {
    out.push_back(str("--resume ", checkpoint.resume,
                      " looks for a checkpoint in this run's folder, and every run without --run-dir gets a new one; "
                      "give --run-dir FOLDER, the same each time, or --resume PATH"));
  }
  if (checkpoint.resumes_own_run() && config.test_steps > 0) {
    out.push_back(str("--test-steps ", config.test_steps, " measures and saves nothing, and with --resume ",
                      checkpoint.resume,
                      " its records would be mixed with those of the run; allowed: --resume none, or "
                      "--resume PATH and a --run-dir of its own"));
  }
  if (config.find_lr > 0 && checkpoint.resumes()) {
    out.push_back(
        "--find-lr begins from a network's initial weights, or those of --init-from; leave --resume and --load out");
  }
  if (config.find_lr > 0 && config.test_steps > 0) {
    out.push_back("--find-lr and --test-steps (or --test) are two tests; give one of them");
  }
  if (checkpoint.resume.empty()) {
    out.push_back("--resume is empty; allowed: none, latest, auto, or the path of a checkpoint");
  }
  if (!checkpoint.load.empty() && checkpoint.resume != "none") {
    out.push_back(str("--load ", shown(checkpoint.load, kLongestPath), " and --resume ",
                      shown(checkpoint.resume, kLongestPath), " both say what to go on from; keep one of them"));
  }
  if (!checkpoint.init_from.empty() && checkpoint.resume != "none" && checkpoint.resume != "auto") {
    out.push_back(str("--init-from starts a new training and --resume ", shown(checkpoint.resume, kLongestPath),
                      " goes on with an old one; keep one of them, or give --resume auto"));
  }
  if (checkpoint.init_from.empty() && checkpoint.init_from_partial) {
    out.push_back("--init-from-partial is given without --init-from");
  }
  if (checkpoint.keep == 0 && (checkpoint.every > 0 || checkpoint.at_start)) {
    out.push_back(str("--keep-checkpoints none saves nothing, but --checkpoint-",
                      checkpoint.every > 0 ? "every" : "at-start", " asks for checkpoints; keep one of them"));
  }
  try {
    parse_signals(checkpoint.preempt_signals);
  } catch (const Error& error) {
    out.push_back(str("--preempt-signal: ", error.message()));
  }
}

enum class PathKind { kFolder, kFile, kAny };

// True if there is such a path, and it can be read. An empty path was not given.
bool check_path(const char* name, const std::string& path, PathKind kind, Problems& out) {
  if (path.empty()) {
    return false;
  }
  const size_t before = out.size();
  const std::string shown_path = shown(path, kLongestPath);
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  const bool is_folder = std::filesystem::is_directory(status);
  if (!std::filesystem::exists(status)) {
    out.push_back(str("--", name, " '", shown_path, "' does not exist"));
  } else if (kind != PathKind::kAny && is_folder != (kind == PathKind::kFolder)) {
    out.push_back(str("--", name, " '", shown_path, "' is a ", is_folder ? "folder" : "file", "; it must be a ",
                      is_folder ? "file" : "folder"));
  } else if (access(path.c_str(), is_folder ? R_OK | X_OK : R_OK) != 0) {
    out.push_back(str("--", name, " '", shown_path, "' cannot be read by this user"));
  }
  return out.size() == before;
}

}  // namespace

std::vector<std::string> problems(const RunConfig& config, int world_size) {
  Problems out;
  check_degrees(config, world_size, out);
  const Problems of_model =
      model::validate(config.model, std::max(config.parallel.tp, 0), std::max(config.parallel.pp, 0));
  out.insert(out.end(), of_model.begin(), of_model.end());
  check_batches(config, out);
  check_tp_overlap(config, out);
  check_zero_shards(config, out);
  check_sum_blocks(config, out);
  check_duration(config, out);
  check_optimizer(config.optimizer, out);
  check_data(config, out);
  check_unused_paths(config, out);
  check_loss_weights(config, out);
  check_precision(config, out);
  check_checkpoints(config, out);
  return out;
}

std::vector<std::string> path_problems(const RunConfig& config) {
  const DataConfig& data = config.data;
  Problems out;
  if (config.is_forecast() && is_weights_file(config.loss.channel_weights)) {
    check_path("loss-channel-weights", config.loss.channel_weights, PathKind::kFile, out);
  }
  if (data.kind != DataKind::kHdf5) {
    return out;
  }
  const PathKind kind = config.is_forecast() ? PathKind::kFolder : PathKind::kFile;
  check_path("train-data", data.train_data, kind, out);
  check_path("valid-data", data.valid_data, kind, out);
  if (config.is_forecast()) {
    if (data.stats.empty() || check_path("stats", data.stats, PathKind::kFolder, out)) {
      check_path("global-means", data.global_means, PathKind::kFile, out);
      check_path("global-stds", data.global_stds, PathKind::kFile, out);
    }
    check_path("time-means", data.time_means, PathKind::kFile, out);
    check_path("static-data", data.roles.static_data, PathKind::kAny, out);
    for (const char* const name : {data::kIncrementMeans, data::kIncrementDeviations}) {
      if (data.target == TargetKind::kIncrement && !data.stats.empty()) {
        check_path("stats", data.stats + "/" + name, PathKind::kFile, out);
      }
    }
  }
  return out;
}

}  // namespace vit_hybrid::train
