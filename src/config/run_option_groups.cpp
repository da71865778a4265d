// The options of model, data and checkpoints, and the ranges that all groups share.
#include "src/config/run_option_groups.h"

#include <utility>

namespace vit_hybrid::train {

using options::choice;
using options::extent;
using options::flag;
using options::integer;
using options::IntegerRange;
using options::number;
using options::NumberRange;
using options::OptionTable;
using options::text;
using options::word;

namespace {
constexpr int64_t kMostSize = 1 << 24;   // of one dimension of a tensor
constexpr int64_t kMostBlocks = 10'000;  // the deepest that were trained have about a thousand
}  // namespace

IntegerRange from_one(int64_t most, std::string word_for_zero) {
  return {1, most, std::move(word_for_zero)};
}

NumberRange at_least_zero(std::string word_for_zero) {
  NumberRange range;
  range.least = 0.0;
  range.word_for_zero = std::move(word_for_zero);
  return range;
}

NumberRange positive(std::string word_for_zero) {
  NumberRange range = at_least_zero(std::move(word_for_zero));
  range.least_bound = NumberRange::Bound::kExcluded;
  return range;
}

NumberRange below_one() {
  NumberRange range = at_least_zero();
  range.most = 1.0;
  range.most_bound = NumberRange::Bound::kExcluded;
  return range;
}

NumberRange between_zero_and_one() {
  NumberRange range = below_one();
  range.least_bound = NumberRange::Bound::kExcluded;
  return range;
}

void add_model(OptionTable& table, RunConfig& config) {
  model::VitOptions& model = config.model;
  table.begin_group("Model");
  table.add({.name = "preset",
             .value = word(config.preset, model::preset_names()),
             .help = "Named model; the options task to mlp-hidden below, where given too, change it.",
             .forgets = {"task", "image-size", "patch-size", "in-channels", "out-channels", "num-classes", "pooling",
                         "embed-dim", "depth", "num-heads", "mlp-hidden"},
             .names_elsewhere = {"model", "arch"}});
  table.add({.name = "task",
             .value = choice(model.task, {"forecast", "classify"}),
             .help = "forecast: predict the next state of fields; classify: predict the class of an image."});
  table.add({.name = "image-size",
             .value = extent(model.image_height, model.image_width, kMostSize),
             .help =
                 "Height and width of the input; one number for a square. A training that is given none takes those "
                 "of the fields of train-data, and for images 224, less where they are stored smaller.",
             .aliases = {"img-size"},
             .names_elsewhere = {"input-size", "resolution"}});
  table.add({.name = "patch-size",
             .value = integer(model.patch_size, from_one(kMostSize)),
             .help = "Side of the square patches that become tokens; divides height and width.",
             .unit = "pixels"});
  table.add({.name = "in-channels",
             .value = integer(model.in_channels, from_one(kMostSize)),
             .help = "Channels of the input; a training that is given none takes those of train-data.",
             .aliases = {"n-in-channels"},
             .megatron = {{"num-channels"}},
             .names_elsewhere = {"in-chans"}});
  table.add(
      {.name = "out-channels",
       .value = integer(model.out_channels, from_one(kMostSize)),
       .help = "Channels of the forecast; a training that is given none takes those of train-data; without train-data "
               "as many as in-channels.",
       .aliases = {"n-out-channels"}});
  table.add({.name = "num-classes",
             .value = integer(model.num_classes, {2, kMostSize}),
             .help = "Classes of the classifier; a training that is given none takes those of train-data.",
             .megatron = {{"num-classes"}}});
  table.add({.name = "pooling",
             .value = choice(model.pooling, {"token", "mean"}),
             .help = "What the classifier looks at: a class token, or the mean of all tokens."});
  table.add({.name = "embed-dim",
             .value = integer(model.embed_dim, from_one(kMostSize)),
             .help = "Features of a token; a multiple of num-heads.",
             .megatron = {{"hidden-size"}},
             .names_elsewhere = {"dim", "d-model", "hidden-dim", "n-embd"}});
  table.add({.name = "depth",
             .value = integer(model.depth, from_one(kMostBlocks)),
             .help = "Transformer blocks.",
             .megatron = {{"num-layers"}},
             .names_elsewhere = {"layers", "n-layers", "num-hidden-layers"}});
  table.add({.name = "num-heads",
             .value = integer(model.num_heads, from_one(kMostSize)),
             .help = "Attention heads of a block.",
             .megatron = {{"num-attention-heads"}},
             .names_elsewhere = {"heads", "n-heads", "nhead"}});
  table.add({.name = "mlp-hidden",
             .value = integer(model.mlp_hidden, from_one(kMostSize)),
             .help = "Hidden features of a block's MLP; 4 x embed-dim where that is given and this is not.",
             .megatron = {{"ffn-hidden-size"}},
             .names_elsewhere = {"mlp-ratio", "mlp-dim", "intermediate-size"}});
  table.add({.name = "dropout",
             .value = number(model.dropout, below_one()),
             .help = "Dropout rate after positions, projection and MLP.",
             .megatron = {{"hidden-dropout"}},
             .names_elsewhere = {"drop", "drop-rate"}});
  table.add({.name = "attention-dropout",
             .value = number(model.attention_dropout, below_one()),
             .help = "Dropout rate of attention weights; the rate of dropout where that is given and this is not.",
             .megatron = {{"attention-dropout"}},
             .names_elsewhere = {"attn-drop", "attn-dropout", "attn-drop-rate"}});
  table.add({.name = "drop-path",
             .value = number(model.drop_path, below_one()),
             .help = "Rate at which the last block is left out for a sample; rises linearly from 0 at the first.",
             .names_elsewhere = {"drop-path-rate", "stochastic-depth"}});
  table.add({.name = "label-smoothing",
             .value = number(model.label_smoothing, below_one()),
             .help = "Share of the target that cross-entropy spreads over all classes.",
             .names_elsewhere = {"smoothing"}});
  table.add({.name = "norm-eps",
             .value = number(model.norm_eps, between_zero_and_one()),
             .help = "Epsilon of the layer norms.",
             .megatron = {{"norm-epsilon"}},
             .names_elsewhere = {"layernorm-epsilon", "layer-norm-eps"}});
}

namespace {

void add_paths(OptionTable& table, RunConfig& config) {
  DataConfig& data = config.data;
  table.begin_group("Data");
  table.add({.name = "data",
             .value = choice(data.kind, {"auto", "hdf5", "synthetic", "builtin"}),
             .help = "hdf5: the files of train-data; synthetic: random numbers, for benchmarks; builtin: weather "
                     "generated in memory, or painted images (classify), and a small model for them where none is "
                     "given; auto: hdf5 where train-data is given, builtin where nothing is."});
  table.add({.name = "train-data",
             .value = text(data.train_data, "path"),
             .help = "Training data: a folder with one HDF5 file a year (forecast), or one HDF5 file (classify).",
             .aliases = {"train-data-path"},
             .names_elsewhere = {"data-path", "data-dir", "train-dir", "train-path", "dataset"}});
  table.add({.name = "valid-data",
             .value = text(data.valid_data, "path"),
             .help = "Validation data, in the form of train-data; without it there is no validation.",
             .aliases = {"valid-data-path"},
             .names_elsewhere = {"val-data", "val-dir", "val-path", "valid-path"}});
  table.add({.name = "stats",
             .value = text(data.stats, "folder"),
             .help = "Folder with global_means.npy, global_stds.npy and, if there is one, time_means.npy.",
             .forgets = {"global-means", "global-stds", "time-means"}});
  table.add({.name = "global-means",
             .value = text(data.global_means, "file"),
             .help = "Mean of each channel; <stats>/global_means.npy where not given.",
             .aliases = {"global-means-path"}});
  table.add({.name = "global-stds",
             .value = text(data.global_stds, "file"),
             .help = "Standard deviation of each channel; <stats>/global_stds.npy where not given.",
             .aliases = {"global-stds-path"}});
  table.add({.name = "time-means",
             .value = text(data.time_means, "file"),
             .help = "Climatology that anomalies are against; <stats>/time_means.npy where not given and there.",
             .aliases = {"time-means-path"}});
  table.add({.name = "dataset-name",
             .value = text(data.dataset_name, "text"),
             .help = "HDF5 dataset with the inputs; fields (forecast) or images (classify) where not given."});
  table.add({.name = "labels-name",
             .value = text(data.labels_name, "text"),
             .help = "HDF5 dataset with the classes (classify)."});
}

void add_use(OptionTable& table, RunConfig& config) {
  DataConfig& data = config.data;
  table.add({.name = "limit-nsamples",
             .value = integer(data.limit_nsamples, from_one(kMostCount, "none")),
             .help = "Use only the first samples of the training data.",
             .unit = "samples"});
  table.add({.name = "limit-nsamples-val",
             .value = integer(data.limit_nsamples_val, from_one(kMostCount, "none")),
             .help = "Use only the first samples of the validation data.",
             .unit = "samples"});
  table.add({.name = "drop-last",
             .value = flag(data.drop_last),
             .help = "Leave out the last part-batch of a training epoch."});
  table.add({.name = "valid-batch-size",
             .value = integer(data.valid_batch_size, from_one(kMostCount, "auto")),
             .help = "Samples of one validation step, over all replicas; auto takes the global batch size.",
             .unit = "samples"});
  table.add({.name = "io",
             .value = choice(data.io, {"auto", "direct", "independent", "collective"}),
             .help = "How HDF5 data is read: direct reads at the dataset's file offset (and inflates gzip) in the "
                     "background; collective and independent go through HDF5, with MPI-IO and without, on the main "
                     "thread; auto takes direct where the data's layout allows it."});
  table.add({.name = "io-threads",
             .value = integer(data.io_threads, {0, kMostThreads}),
             .help = "Threads that read ahead; with 0 the main thread reads when it needs the data.",
             .aliases = {"num-data-workers"},
             .megatron = {{"num-workers"}},
             .names_elsewhere = {"workers", "dataloader-num-workers"}});
  table.add({.name = "prefetch-depth",
             .value = integer(data.prefetch_depth, from_one(kMostThreads)),
             .help = "Batches that are read ahead.",
             .unit = "batches"});
  table.add({.name = "pin-memory",
             .value = choice(data.pin_memory, {"auto", "on", "off"}),
             .help = "Page-lock the host memory of batches, so that copies to a GPU are fast and need not be waited "
                     "for; auto: where the device is a GPU."});
  table.add({.name = "stage-data",
             .value = choice(data.stage, {"none", "node"}),
             .help =
                 "node: the ranks of each node copy the data that are used to memory or local disk before the first "
                 "step, once a node; the space is free again when they end."});
  table.add(
      {.name = "stage-dir",
       .value = text(data.stage_dir, "folder"),
       .help = "Where the copies of stage-data go, on every node; /dev/shm where not given and there, else TMPDIR."});
  table.add({.name = "mpiio-hints",
             .value = text(data.mpiio_hints, "key=value,..."),
             .help = "Hints for MPI-IO, with collective reading: striping_unit, romio_cb_read, cb_nodes, ..."});
  table.add({.name = "interpolation",
             .value = choice(data.interpolation, {"bilinear", "bicubic"}),
             .help = "How crops of images are resized (classify), with antialiasing."});
  table.add({.name = "valid-resize",
             .value = integer(data.valid_resize, from_one(kMostSize, "auto")),
             .help = "Both sides of the images of which validation takes the centre (classify), at least image-size; "
                     "auto: 256 at image-size 224, and in this ratio at others.",
             .unit = "pixels"});
  options::NumberRange alphas = at_least_zero("none");
  alphas.most = 2.0;
  table.add({.name = "mixup",
             .value = number(data.mixup, alphas),
             .help = "Mix each training image and its class with another one's (classify); the share is drawn from "
                     "Beta(mixup, mixup)."});
  table.add({.name = "generated-samples",
             .value = integer(data.generated_samples, from_one(kMostCount)),
             .help = "Training samples of synthetic and builtin data.",
             .unit = "samples"});
  table.add({.name = "generated-valid-samples",
             .value = integer(data.generated_valid_samples, {0, kMostCount}),
             .help = "Validation samples of synthetic and builtin data.",
             .unit = "samples"});
}

}  // namespace

void add_data(OptionTable& table, RunConfig& config) {
  add_paths(table, config);
  add_use(table, config);
}

void add_checkpoints(options::OptionTable& table, RunConfig& config) {
  CheckpointConfig& checkpoint = config.checkpoint;
  table.begin_group("Checkpoints");
  table.add({.name = "resume",
             .value = text(checkpoint.resume, "none|latest|auto|PATH"),
             .help = "Go on from a checkpoint, in any layout: the newest of this run's folder (latest), the same or, "
                     "where there is none yet, a new training (auto), or a file or folder (PATH).",
             .names_elsewhere = {"load-checkpoint", "resume-from", "resume-from-checkpoint"}});
  table.add({.name = "load",
             .value = text(checkpoint.load, "folder"),
             .help = "Go on from the newest checkpoint of this folder, in any layout, or, with a warning, start anew "
                     "where it has none.",
             .megatron = {{"load"}}});
  table.add({.name = "init-from",
             .value = text(checkpoint.init_from, "path"),
             .help = "Start a new training from the weights of a checkpoint, with a fresh optimizer; positions are "
                     "resized where the grid of patches differs.",
             .names_elsewhere = {"pretrained-checkpoint", "pretrained", "finetune-from"}});
  table.add({.name = "init-from-partial",
             .value = flag(checkpoint.init_from_partial),
             .help = "Let a head, last norm or class token that does not fit keep its initial values."});
  table.add({.name = "checkpoint-every",
             .value = integer(checkpoint.every, from_one(kMostCount, "none")),
             .help = "Iterations from one checkpoint to the next, and one after each validation that is the best so "
                     "far; none: only at the end and when the run is stopped.",
             .unit = "iterations",
             .megatron = {{"save-interval"}},
             .names_elsewhere = {"save-every", "save-freq", "save-steps", "checkpoint-interval"}});
  table.add({.name = "checkpoint-at-start",
             .value = flag(checkpoint.at_start),
             .help = "Save a checkpoint before the first iteration."});
  table.add({.name = "checkpoint-async",
             .value = flag(checkpoint.async),
             .help = "Copy the state to host memory and write it on a thread while training goes on.",
             .megatron = {{"async-save"}}});
  table.add({.name = "keep-checkpoints",
             .value = integer(checkpoint.keep, from_one(kMostCount, "none")),
             .help = "Newest checkpoints that are kept, besides the best by validation; none: no checkpoint is ever "
                     "saved."});
  table.add({.name = "checkpoint-dir",
             .value = text(checkpoint.dir, "folder"),
             .help = "Folder for checkpoints; where not given, checkpoints/ in the run's folder.",
             .megatron = {{"save"}},
             .names_elsewhere = {"save-dir", "checkpoint-path", "ckpt-dir"}});
  table.add({.name = "lock-renewal",
             .value = number(checkpoint.lock_renewal, {.least = 0.1, .most = 3600.0}),
             .help =
                 "Time from one renewal of the lock in the folders that the run writes to, to the next; a lock that "
                 "missed three of them is taken over.",
             .unit = "s"});
  table.add({.name = "preempt-signal",
             .value = text(checkpoint.preempt_signals, "NAMES"),
             .help = "Signals on which the run saves, ends with code 75 and may be resumed: names with commas between "
                     "them, of USR1, USR2, TERM, INT."});
  table.add({.name = "time-limit",
             .value = number(checkpoint.time_limit, positive("none")),
             .help = "Save and end with code 75 before the run has taken so long; the end of a Slurm job "
                     "(SLURM_JOB_END_TIME) does the same.",
             .unit = "s"});
}

}  // namespace vit_hybrid::train
