// The options of a run by groups: names, ranges and sentences.
#include "src/config/run_options.h"

#include <utility>

#include "src/config/field_options.h"
#include "src/config/model_options.h"

namespace vit_hybrid::train {

using options::choice;
using options::flag;
using options::integer;
using options::number;
using options::NumberRange;
using options::OptionTable;
using options::Scope;
using options::text, options::text_list;
using options::word;

options::IntegerRange from_one(int64_t most, std::string word) {
  return {1, most, std::move(word)};
}

namespace {

constexpr int64_t kMostSide = 1 << 24;  // of an image
constexpr int64_t kMostEpochs = 1 << 24;
constexpr int64_t kMostBatch = int64_t{1} << 40;  // times kMostRanks it is still a number
constexpr int64_t kUsualTestSteps = 50;

NumberRange at_least_zero(std::string word = {}) {
  return {.least = 0.0, .word = std::move(word)};
}

NumberRange positive(std::string word = {}) {
  return {.least = 0.0, .least_bound = NumberRange::Bound::kExcluded, .word = std::move(word)};
}

NumberRange below_one() {
  return {.least = 0.0, .most = 1.0, .most_bound = NumberRange::Bound::kExcluded};
}

template <size_t n>
std::vector<std::string> words_of(const std::array<const char*, n>& names) {
  return {names.begin(), names.end()};
}

// --test is --test-steps 50; beside a --test-steps of another number it changes nothing.
options::Value test_flag(int64_t& steps) {
  options::Value value{options::Kind::kFlag, "flag", "true, false", {}, {}};
  value.parse = [&steps](const std::string& text) {
    bool is_on = false;
    if (!flag(is_on).parse(text)) {
      return false;
    }
    if (!is_on || steps == 0) {
      steps = is_on ? kUsualTestSteps : 0;
    }
    return true;
  };
  value.print = [&steps] { return std::string(steps > 0 ? "true" : "false"); };
  return value;
}

void add_general(OptionTable& table, RunConfig& config, RunRequest& request) {
  table.begin_group("General");
  table.add({.name = "config",
             .value = text_list(request.config_files, "FILE[:SECTION]"),
             .help = "YAML file with settings, and which of its sections to use; may be repeated, later ones win.",
             .scope = Scope::kCommandLineOnly});
  table.add({.name = "print-config",
             .value = flag(request.print_config),
             .help = "Print the resolved configuration with the origin of each value, and end.",
             .scope = Scope::kCommandLineOnly});
  table.add({.name = "print-schedule",
             .value = flag(request.print_schedule),
             .help = "Print the pipeline schedule as a grid, and end.",
             .scope = Scope::kCommandLineOnly});
  table.add({.name = "print-lr",
             .value = flag(request.print_lr),
             .help = "Print the learning rates of the run, 'step rate' a line, and end.",
             .scope = Scope::kCommandLineOnly});
  table.add({.name = "print-lr-every",
             .value = integer(request.print_lr_every, from_one(kMostCount, "auto")),
             .help =
                 "As --print-lr, with a line for every so many iterations, beside the turning points, which are always "
                 "there; auto: about 200 lines.",
             .unit = "iterations",
             .scope = Scope::kCommandLineOnly});
  table.add({.name = "help",
             .value = flag(request.help),
             .help = "Print this list, and end.",
             .scope = Scope::kCommandLineOnly});
  table.add({.name = "version",
             .value = flag(request.version),
             .help = "Print version, git commit, compiler and library versions, and end.",
             .scope = Scope::kCommandLineOnly});
  table.add(
      {.name = "name",
       .value = text(config.name, "text"),
       .help = "Name of the run; where not given, that of the configuration's section or file, or of the preset."});
  table.add({.name = "run-dir",
             .value = text(config.run_dir, "folder"),
             .help = "Folder for the run's files; where not given, <runs-root>/<name>-<time>.",
             .names_elsewhere = {"output-dir", "out-dir", "output", "log-dir", "results-dir"}});
  table.add({.name = "runs-root",
             .value = text(config.runs_root, "folder"),
             .help = "Where run folders are made when --run-dir is not given.",
             .aliases = {"expdir"}});
  table.add({.name = "machine",
             .value = text(config.machine, "file"),
             .help = "Machine file, as calibrate writes it, by which the time of a step is predicted: see "
                     "docs/planner.md."});
  table.add({.name = "seed",
             .value = integer(config.seed, {0}),
             .help = "Key of every random number: initial weights, dropout, order of samples.",
             .megatron = {{"seed"}},
             .names_elsewhere = {"random-seed"}});
  table.add({.name = "log-interval",
             .value = integer(config.log_interval, from_one(kMostCount)),
             .help = "Iterations from one log line to the next.",
             .unit = "iterations",
             .megatron = {{"log-interval"}},
             .names_elsewhere = {"print-freq", "log-every", "logging-steps"}});
  table.add({.name = "histogram-every",
             .value = integer(config.histogram_every, from_one(kMostCount, "none")),
             .help = "Iterations from one set of histograms of all weights and gradients to the next, in the event "
                     "files for TensorBoard.",
             .unit = "iterations",
             .names_elsewhere = {"histogram-freq", "histogram-interval", "histograms", "log-histograms"}});
  table.add({.name = "test-steps",
             .value = integer(config.test_steps, from_one(kMostCount, "none")),
             .help = "Test mode: do so many iterations and 20 batches of a validation without checkpoints, and print "
                     "times by phase, memory, power and how long an epoch and the whole training would take.",
             .unit = "iterations",
             .aliases = {"test-nsteps"}});
  table.add({.name = "find-lr",
             .value = integer(config.find_lr, {10, kMostCount, "none"}),
             .help =
                 "Learning-rate range test: so many iterations (100 are usual) with a learning rate that rises from "
                 "1e-7 to 10, without validation and checkpoints, until the loss diverges; prints the rate at which "
                 "it fell fastest.",
             .unit = "iterations",
             .names_elsewhere = {"lr-find", "lr-finder", "auto-lr-find"}});
  table.add({.name = "test",
             .value = test_flag(config.test_steps),
             .help = "The test mode with 50 iterations, or with those of test-steps.",
             .forgets = {"test-steps"},
             .scope = Scope::kCommandLineOnly});
  table.add({.name = "trace",
             .value = options::step_range(config.trace, "steps="),
             .help = "Write what every rank did in these iterations, counted from the start of the run, to trace.json "
                     "in the run's folder, for Perfetto and chrome://tracing."});
  table.add({.name = "profile-steps",
             .value = options::step_range(config.profile),
             .help = "Have the profiler that is attached (perf, Nsight Systems) capture these iterations, counted from "
                     "the start of the run, and nothing else; launch/profile attaches one to every rank.",
             .names_elsewhere = {"profile", "profile-step-start", "profile-step-end"}});
}

void add_usage(OptionTable& table, RunConfig& config) {
  table.add({.name = "usage-interval",
             .value = number(config.usage_interval, {.least = 0.05, .most = 60.0, .word = "off", .word_value = 0.0}),
             .help = "Time between two samples of how processors, memory and GPUs are used and what power they take, "
                     "in usage.jsonl and summary.json; off: none, and no energy.",
             .unit = "s"});
  table.add({.name = "energy-counters",
             .value = text(config.energy_counters, "folder"),
             .help = "Folder of the kernel's powercap counters, where a container has them at another place."});
}

void add_device(OptionTable& table, RunConfig& config) {
  // Outside all gradients of fp16 are lost or overflow.
  const NumberRange loss_scales{.least = 1e-4, .most = 1e12, .word = "dynamic"};
  table.begin_group("Device and precision");
  table.add({.name = "device",
             .value = choice(config.device, {"auto", "cpu", "cuda"}),
             .help = "Where tensors live; auto takes GPUs where the program and the machine have them."});
  table.add(
      {.name = "precision",
       .value = choice(config.precision.kind, words_of(kPrecisionNames), {{"none", Precision::kFp32}}),
       .help =
           "Type of parameters and activations; with bf16 and fp16, which are half as long, the optimizer's "
           "weights, the gradients and all sums are fp32; tf32 is fp32 with a GPU's short products (on a CPU: fp32).",
       .aliases = {"amp-mode"},
       .megatron = {{"bf16", "bf16"}, {"fp16", "fp16"}},
       .names_elsewhere = {"dtype", "amp", "mixed-precision", "fp32", "fp64", "tf32"}});
  table.add({.name = "loss-scale",
             .value = number(config.precision.loss_scale, loss_scales),
             .help = "What fp16 gradients are multiplied by on their way; dynamic: halved when they overflow, doubled "
                     "after 2000 steps without.",
             .megatron = {{"loss-scale"}}});
  table.add({.name = "grad-dtype",
             .value = choice(config.precision.gradient, {"master", "half"}),
             .help = "Type in which gradients are added up over micro-batches, with bf16 and fp16: the master weights' "
                     "(fp32), or the parameters', in which they are then reduced too."});
  table.add({.name = "reduce-dtype",
             .value = choice(config.precision.reduce, {"grad", "half"}),
             .help =
                 "Type in which gradients are reduced over replicas, with bf16 and fp16: that of grad-dtype, or the "
                 "parameters', which halves the bytes."});
  table.add({.name = "recompute",
             .value = choice(config.recompute, words_of(kRecomputeNames)),
             .help = "Activations that backward computes again instead of keeping them: none; selective: the inputs of "
                     "attention and of GELU; full: all of a block but its input.",
             .megatron = {{"recompute-granularity"}},
             .names_elsewhere = {"activation-checkpointing", "gradient-checkpointing", "checkpoint-activations"}});
  table.add({.name = "deterministic",
             .value = flag(config.deterministic),
             .help = "Use only kernels that give the same bits each time: on GPUs those that add in a fixed order; on "
                     "CPUs, where all do, the one that is usual on the processor, without measuring.",
             .megatron = {{"deterministic-mode"}}});
  table.add({.name = "retune",
             .value = flag(config.retune),
             .help = "Measure again which kernels are fastest, instead of using the choice of the checkpoint or of "
                     "this machine."});
  table.add(
      {.name = "cuda-graph",
       .value = choice(config.cuda_graph, {"auto", "on", "off"}),
       .help =
           "On a GPU record a step once (forward and backward of a micro-batch; on one rank also norm and update) and "
           "start it as a whole; auto: where pp is 1, without dropout and drop path; where dp is not 1, all "
           "micro-batches of a step but the first and the last."});
  table.add({.name = "ranks-per-gpu",
             .value = integer(config.parallel.ranks_per_gpu, from_one(kMostThreads)),
             .help = "Ranks that share a GPU, for tests of layouts on few GPUs."});
  table.add({.name = "threads",
             .value = integer(config.parallel.threads, from_one(kMostThreads, "auto")),
             .help =
                 "Threads a rank computes with; auto takes OMP_NUM_THREADS, else its share of the cores that it may "
                 "run on.",
             .names_elsewhere = {"num-threads", "omp-num-threads"}});
}

void add_parallel(OptionTable& table, RunConfig& config) {
  ParallelConfig& parallel = config.parallel;
  table.begin_group("Parallelism");
  table.add({.name = "dp",
             .value = integer(parallel.dp, from_one(kMostRanks, "auto")),
             .help = "Data-parallel degree: number of model replicas; auto takes the ranks that are left.",
             .aliases = {"data-parallel-size"},
             .names_elsewhere = {"num-replicas", "dp-size", "data-parallel"}});
  table.add({.name = "tp",
             .value = integer(parallel.tp, from_one(kMostRanks)),
             .help = "Tensor-parallel degree: ranks that share each layer; at most the number of heads.",
             .aliases = {"tensor-parallel"},
             .megatron = {{"tensor-model-parallel-size"}},
             .names_elsewhere = {"tensor-parallel-size", "tp-size"}});
  table.add({.name = "pp",
             .value = integer(parallel.pp, from_one(kMostRanks)),
             .help = "Pipeline-parallel degree: number of stages; at most depth + 2.",
             .megatron = {{"pipeline-model-parallel-size"}},
             .names_elsewhere = {"pipeline-parallel-size", "pp-size", "num-stages"}});
  table.add({.name = "tp-overlap",
             .value = flag(parallel.tp_overlap),
             .help = "Hide forward's tensor-parallel sums: micro-batches of 2 samples or more are computed in two "
                     "halves that take turns, so that the sum of one is on its way while the other computes.",
             .names_elsewhere = {"tp-comm-overlap"}});
  table.add({.name = "order",
             .value = word(parallel.order, {mesh::kOrders.begin(), mesh::kOrders.end()}),
             .help = "Order in which ranks are laid out on the axes, fastest first."});
  table.add({.name = "sum-blocks",
             .value = text(parallel.sum_blocks, "N,N,..."),
             .help =
                 "Sizes of runs of ranks of which sums over host tensors are put together: in rank order inside of a "
                 "run, then the runs by a balanced tree. nodes: each node's ranks, so that a node sends only their "
                 "sum; auto: those of the checkpoint that is resumed, else the nodes. The same runs give the same "
                 "bits on any nodes."});
  table.add({.name = "zero",
             .value = integer(parallel.zero, {0, 1}),
             .help = "1: each data-parallel rank keeps its share of the optimizer state (ZeRO-1); 0: each keeps all.",
             .megatron = {{"use-distributed-optimizer", "1", "0"}},
             .names_elsewhere = {"zero-stage"}});
  table.add(
      {.name = "zero-shard-size",
       .value = integer(parallel.zero_shard_size, from_one(kMostRanks, "auto")),
       .help = "Consecutive ranks of dp that split the optimizer state among them with --zero 1, such as those of "
               "a node, so that parameters are gathered among them alone; it divides dp, and auto is all of dp.",
       .names_elsewhere = {"hybrid-shard-size", "partition-group-size", "mics-shard-size", "zero-hpz-partition-size"}});
  table.add({.name = "schedule",
             .value = word(parallel.schedule, {"1f1b", "gpipe"}),
             .help = "Pipeline schedule.",
             .names_elsewhere = {"pipeline-schedule"}});
  table.add({.name = "bucket-mb",
             .value = number(parallel.bucket_mb, positive("auto")),
             .help = "Size of the pieces in which gradients are reduced while backward runs; auto is 4 on CPUs, 25 on "
                     "GPUs.",
             .unit = "MiB",
             .aliases = {"bucket-cap-mb"}});
  table.add({.name = "dp-max-ctas",
             .value = integer(parallel.dp_max_ctas, {1, 32, "auto"}),
             .help =
                 "Most thread blocks (CTAs) of a GPU that NCCL takes for the data axis, whose reductions run beside "
                 "backward's products: fewer leave those more of the GPU; auto is NCCL's own choice.",
             .names_elsewhere = {"nccl-max-ctas", "max-ctas"}});
  table.add({.name = "communication-thread",
             .value = flag(parallel.communication_thread),
             .help = "Move messages between hosts by a thread of its own while kernels compute: hides reductions and "
                     "gathers where the network does not move them by itself (TCP) and a core is spare. On the "
                     "command line only, because MPI is started with MPI_THREAD_SERIALIZED for it."});
  table.add({.name = "timeout",
             .value = number(parallel.timeout, positive()),
             .help = "Longest time that one communication may take before the job is ended with its name.",
             .unit = "s",
             .names_elsewhere = {"distributed-timeout-minutes"}});
}

void add_batch(OptionTable& table, RunConfig& config) {
  table.begin_group("Batch");
  table.add({.name = "global-batch-size",
             .value = integer(config.global_batch_size, from_one(kMostBatch)),
             .help = "Samples of one iteration, over all replicas.",
             .unit = "samples",
             .forgets = {"local-batch-size"},
             .megatron = {{"global-batch-size"}},
             .names_elsewhere = {"batch-size", "train-batch-size", "bs"}});
  table.add({.name = "local-batch-size",
             .value = integer(config.local_batch_size, from_one(kMostBatch, "none")),
             .help = "Samples of one iteration a replica; where given, the global batch size is dp times this.",
             .unit = "samples",
             .forgets = {"global-batch-size"},
             .names_elsewhere = {"batch-size-per-gpu", "batch-size-per-device", "per-device-train-batch-size"}});
  table.add({.name = "micro-batch-size",
             .value = integer(config.parallel.micro_batch_size, from_one(kMostBatch, "auto")),
             .help = "Samples that go through the model at once; auto takes all of a replica's without a pipeline, "
                     "else makes 4 pp micro-batches.",
             .unit = "samples",
             .megatron = {{"micro-batch-size"}},
             .names_elsewhere = {"microbatch-size", "train-micro-batch-size-per-gpu"}});
}

void add_training(OptionTable& table, RunConfig& config) {
  ScheduleConfig& schedule = config.schedule;
  table.begin_group("Learning rate and duration");
  table.add({.name = "steps",
             .value = integer(schedule.steps, from_one(kMostCount, "none")),
             .help = "Iterations of the run.",
             .unit = "iterations",
             .aliases = {"num-iters"},
             .forgets = {"epochs"},
             .megatron = {{"train-iters"}},
             .names_elsewhere = {"max-steps", "num-steps", "iterations", "max-iters", "train-steps", "total-steps"}});
  table.add({.name = "epochs",
             .value = integer(schedule.epochs, from_one(kMostEpochs, "none")),
             .help = "Passes over the training data, instead of steps.",
             .forgets = {"steps"},
             .names_elsewhere = {"num-epochs", "max-epochs", "num-train-epochs"}});
  table.add({.name = "lr",
             .value = number(schedule.lr, positive()),
             .help = "Largest learning rate of the schedule.",
             .megatron = {{"lr"}},
             .names_elsewhere = {"learning-rate", "base-lr", "max-lr", "blr"}});
  table.add({.name = "lr-schedule",
             .value = choice(schedule.kind, {"constant", "cosine", "one-cycle", "linear", "wsd", "cosine-reference"}),
             .help =
                 "How the learning rate goes over the iterations (docs/numerics.md): after the warm-up it falls along "
                 "a cosine or a line, stays and falls in the end (wsd), or stays; cosine-reference counts its cosine "
                 "from the first iteration, as the reference workload does.",
             .megatron = {{"lr-decay-style"}},
             .names_elsewhere = {"lr-scheduler", "lr-scheduler-type", "scheduler", "sched"}});
  table.add({.name = "min-lr",
             .value = number(schedule.min_lr, at_least_zero()),
             .help = "Rate that cosine, linear and wsd have come to behind the last iteration; scaled as lr is.",
             .megatron = {{"min-lr"}}});
  table.add(
      {.name = "decay-share",
       .value = number(schedule.decay_share, {.least = 0.0, .most = 1.0, .least_bound = NumberRange::Bound::kExcluded}),
       .help = "Part of the iterations in which wsd falls."});
  table.add({.name = "warmup",
             .value = integer(schedule.warmup, {0, kMostCount}),
             .help = "Iterations in which the learning rate rises linearly (one-cycle: along a cosine, and 30 % of the "
                     "run where 0).",
             .unit = "iterations",
             .megatron = {{"lr-warmup-iters"}},
             .names_elsewhere = {"warmup-steps", "lr-warmup-steps", "warmup-iters", "num-warmup-steps"}});
  table.add({.name = "lr-scaling",
             .value = choice(schedule.scaling, {"none", "sqrt", "linear"}),
             .help =
                 "linear: multiply the learning rate by global-batch-size / lr-batch-size; sqrt: by the square root "
                 "of that."});
  table.add({.name = "lr-batch-size",
             .value = integer(schedule.lr_batch_size, from_one(kMostBatch)),
             .help = "Batch size that the learning rate is meant for, with lr-scaling.",
             .unit = "samples"});
}

void add_optimizer(OptionTable& table, RunConfig& config) {
  OptimizerConfig& optimizer = config.optimizer;
  table.begin_group("Optimizer");
  table.add({.name = "optimizer",
             .value = choice(optimizer.kind, words_of(zero::kOptimizerNames)),
             .help = "adam adds weight decay to the gradient, adamw to the step; sgd has momentum; lamb and lars are "
                     "adamw and sgd with a step that is scaled for each parameter by its norm.",
             .names_elsewhere = {"opt", "optim"}});
  table.add({.name = "beta1",
             .value = number(optimizer.beta1, below_one()),
             .help = "Decay of the mean of gradients (adam, adamw, lamb).",
             .megatron = {{"adam-beta1"}}});
  table.add({.name = "beta2",
             .value = number(optimizer.beta2, below_one()),
             .help = "Decay of the mean of squared gradients (adam, adamw, lamb).",
             .megatron = {{"adam-beta2"}}});
  table.add({.name = "eps",
             .value = number(optimizer.eps, positive()),
             .help = "Added to the root of the mean of squared gradients (adam, adamw, lamb).",
             .megatron = {{"adam-eps"}},
             .names_elsewhere = {"opt-eps"}});
  table.add({.name = "momentum",
             .value = number(optimizer.momentum, below_one()),
             .help = "Decay of the sum of gradients (sgd, lars); 0 keeps none.",
             .megatron = {{"sgd-momentum"}}});
  table.add({.name = "nesterov",
             .value = flag(optimizer.nesterov),
             .help = "Step ahead along the momentum, after Nesterov (sgd)."});
  table.add({.name = "trust-coefficient",
             .value = number(optimizer.trust_coefficient, positive()),
             .help = "Length of a parameter's step, before lr, over that of the parameter (lars)."});
  table.add({.name = "weight-decay",
             .value = number(optimizer.weight_decay, at_least_zero()),
             .help = "Weight decay of matrices.",
             .megatron = {{"weight-decay"}},
             .names_elsewhere = {"wd"}});
  table.add({.name = "decay-vectors",
             .value = flag(optimizer.decay_vectors),
             .help = "Let weight decay, and the scaling of lamb and lars, act on biases, norms and positions too."});
  table.add({.name = "clip-norm",
             .value = number(optimizer.clip_norm, at_least_zero("none")),
             .help = "Largest norm of the whole gradient; longer ones are scaled down to it.",
             .megatron = {{"clip-grad"}},
             .names_elsewhere = {"grad-clip", "max-grad-norm", "gradient-clip-val", "gradient-clipping"}});
}

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
             .help =
                 "Training data: a folder with one HDF5 or NetCDF-4 file a year, or of Zarr stores, or a Zarr store "
                 "(forecast), or one HDF5 file (classify).",
             .aliases = {"train-data-path"},
             .names_elsewhere = {"data-path", "data-dir", "train-dir", "train-path", "dataset"}});
  table.add({.name = "valid-data",
             .value = text(data.valid_data, "path"),
             .help = "Validation data, in the form of train-data; without it there is no validation.",
             .aliases = {"valid-data-path"},
             .names_elsewhere = {"val-data", "val-dir", "val-path", "valid-path"}});
  table.add({.name = "train-dates",
             .value = text(data.train_dates, "FROM/TO"),
             .help = "Dates of the training data that are used, both included: 2015, 1979/2015-06, "
                     "1990-01-01/1990-12-30; all where not given. Training and validation may be parts of one store."});
  table.add(
      {.name = "valid-dates",
       .value = text(data.valid_dates, "FROM/TO"),
       .help = "The same of the validation data; in evaluate and forecast of the data that they read. Forecasts start "
               "in them; states before a start and truths behind it are also those of other dates."});
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
             .help = "HDF5 dataset with the inputs; fields (forecast) or images (classify) where not given. Fields may "
                     "also lie in variables of their own: see channels."});
  add_channels(table, data.channels, data.variables);
  table.add({.name = "labels-name",
             .value = text(data.labels_name, "text"),
             .help = "HDF5 dataset with the classes (classify)."});
  add_lead(table, data.lead, "Rows of the data from an input to its target: what the model predicts in one step.");
  add_roles(table, data);
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
             .value = integer(data.io_threads, {0, kMostThreads, "auto", -1}),
             .help = "Threads that read ahead; with 0 the main thread reads when it needs the data; auto: 2, on a GPU "
                     "half of the rank's threads, 2 to 8.",
             .aliases = {"num-data-workers"},
             .megatron = {{"num-workers"}},
             .names_elsewhere = {"workers", "dataloader-num-workers"}});
  table.add({.name = "prefetch-depth",
             .value = integer(data.prefetch_depth, from_one(kMostThreads, "auto")),
             .help = "Batches that are read ahead; auto: as many as threads, at least 2.",
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
             .value = integer(data.valid_resize, from_one(kMostSide, "auto")),
             .help = "Both sides of the images of which validation takes the centre (classify), at least image-size; "
                     "auto: 256 at image-size 224, and in this ratio at others.",
             .unit = "pixels"});
  table.add({.name = "mixup",
             .value = number(data.mixup, {.least = 0.0, .most = 2.0, .word = "none"}),
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

void add_checkpoints(OptionTable& table, RunConfig& config) {
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

// Keys of the reference workload's YAML that say how PyTorch is to do it.
void accept_reference_keys(OptionTable& table) {
  for (const char* key : {"model_backend", "data_loader_config", "enable_fused", "enable_jit", "enable_apex",
                          "inf_data_path", "wireup_info", "wireup_store"}) {
    table.accept_unused(key);
  }
}

}  // namespace

options::OptionTable run_option_table(RunConfig& config, RunRequest& request) {
  OptionTable table;
  add_general(table, config, request);
  add_parallel(table, config);
  add_batch(table, config);
  add_usage(table, config);
  add_device(table, config);
  add_model(table, config);
  add_loss_weights(table, config.loss);
  add_training(table, config);
  add_optimizer(table, config);
  add_paths(table, config);
  add_use(table, config);
  add_checkpoints(table, config);
  accept_reference_keys(table);
  return table;
}

options::Source builtin_default(model::Task task) {
  using Settings = std::vector<std::pair<const char*, const char*>>;
  const Settings forecast = {{"image-size", "32x64"},     {"in-channels", "8"}, {"patch-size", "4"},
                             {"global-batch-size", "16"}, {"steps", "200"},     {"lr", "1e-3"}};
  const Settings classify = {{"image-size", "32"}, {"in-channels", "3"},     {"num-classes", "6"},
                             {"patch-size", "8"},  {"label-smoothing", "0"}, {"global-batch-size", "32"},
                             {"steps", "750"},     {"lr", "5e-4"},           {"generated-samples", "8000"}};
  Settings settings = {{"data", "builtin"}, {"embed-dim", "128"}, {"depth", "4"}, {"num-heads", "4"}};
  const Settings& of_task = task == model::Task::kForecast ? forecast : classify;
  settings.insert(settings.end(), of_task.begin(), of_task.end());
  options::Source source;
  for (const auto& [name, value] : settings) {
    source.push_back({name, value, options::Place::kProgram, "built-in default"});
  }
  return source;
}

}  // namespace vit_hybrid::train
