// The options of a run but for model, data and checkpoints: names, ranges and sentences; and the table of all.
#include "src/config/run_options.h"

#include <utility>

#include "src/config/run_option_groups.h"

namespace vit_hybrid::train {

namespace {

using options::choice;
using options::flag;
using options::integer;
using options::number;
using options::OptionTable;
using options::Scope;
using options::text;
using options::text_list;
using options::word;

constexpr int64_t kMostRanks = 1 << 20;
constexpr int64_t kMostEpochs = 1 << 24;
constexpr int64_t kMostBatch = int64_t{1} << 40;  // times kMostRanks it is still a number
constexpr int64_t kUsualTestSteps = 50;

// Outside all gradients of fp16 are lost or overflow.
options::NumberRange loss_scale_range() {
  return {.least = 1e-4, .most = 1e12, .word_for_zero = "dynamic"};
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
  table.add({.name = "test-steps",
             .value = integer(config.test_steps, from_one(kMostCount, "none")),
             .help = "Test mode: do so many iterations without validation and checkpoints, and print times by phase, "
                     "memory, power and how long an epoch and the whole training would take.",
             .unit = "iterations",
             .aliases = {"test-nsteps"}});
  table.add({.name = "test",
             .value = test_flag(config.test_steps),
             .help = "The test mode with 50 iterations, or with those of test-steps.",
             .forgets = {"test-steps"},
             .scope = Scope::kCommandLineOnly});
}

void add_device(OptionTable& table, RunConfig& config) {
  table.begin_group("Device and precision");
  table.add({.name = "device",
             .value = choice(config.device, {"auto", "cpu", "cuda"}),
             .help = "Where tensors live; auto takes GPUs where the program and the machine have them."});
  table.add(
      {.name = "precision",
       .value = choice(config.precision.kind, {"fp32", "fp64", "tf32", "bf16", "fp16"}, {{"none", Precision::kFp32}}),
       .help =
           "Type of parameters and activations; with bf16 and fp16, which are half as long, the optimizer's "
           "weights, the gradients and all sums are fp32; tf32 is fp32 with a GPU's short products (on a CPU: fp32).",
       .aliases = {"amp-mode"},
       .megatron = {{"bf16", "bf16"}, {"fp16", "fp16"}},
       .names_elsewhere = {"dtype", "amp", "mixed-precision", "fp32", "fp64", "tf32"}});
  table.add({.name = "loss-scale",
             .value = number(config.precision.loss_scale, loss_scale_range()),
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
             .value = choice(config.recompute, {"none", "selective", "full"}),
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
  table.add({.name = "cuda-graph",
             .value = choice(config.cuda_graph, {"auto", "on", "off"}),
             .help =
                 "On a GPU record a step once (forward and backward of a micro-batch, norm, update) and start it as a "
                 "whole; auto: on one rank, without dropout and drop path."});
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
  table.add({.name = "order",
             .value = word(parallel.order, {"tp-dp-pp", "tp-pp-dp", "dp-tp-pp", "dp-pp-tp", "pp-tp-dp", "pp-dp-tp"}),
             .help = "Order in which ranks are laid out on the axes, fastest first."});
  table.add({.name = "zero",
             .value = integer(parallel.zero, {0, 1}),
             .help = "1: each data-parallel rank keeps its share of the optimizer state (ZeRO-1); 0: each keeps all.",
             .megatron = {{"use-distributed-optimizer", "1", "0"}},
             .names_elsewhere = {"zero-stage"}});
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
  options::NumberRange share = positive();
  share.most = 1.0;
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
  table.add({.name = "decay-share",
             .value = number(schedule.decay_share, share),
             .help = "Part of the iterations in which wsd falls."});
  table.add({.name = "warmup",
             .value = integer(schedule.warmup, {0, kMostCount}),
             .help = "Iterations in which the learning rate rises linearly (one-cycle: along a cosine, and 30 % of the "
                     "run where 0).",
             .unit = "iterations",
             .megatron = {{"lr-warmup-iters"}},
             .names_elsewhere = {"warmup-steps", "lr-warmup-steps", "warmup-iters", "num-warmup-steps"}});
  table.add({.name = "lr-scaling",
             .value = choice(schedule.scaling, {"none", "sqrt"}),
             .help = "sqrt: multiply the learning rate by the square root of global-batch-size / lr-batch-size."});
  table.add({.name = "lr-batch-size",
             .value = integer(schedule.lr_batch_size, from_one(kMostBatch)),
             .help = "Batch size that the learning rate is meant for, with lr-scaling sqrt.",
             .unit = "samples"});
}

void add_optimizer(OptionTable& table, RunConfig& config) {
  OptimizerConfig& optimizer = config.optimizer;
  table.begin_group("Optimizer");
  table.add({.name = "optimizer",
             .value = choice(optimizer.kind, {"adam", "adamw", "sgd", "lamb", "lars"}),
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

// Keys of the reference workload's YAML that say how PyTorch is to do it.
void accept_reference_keys(OptionTable& table) {
  for (const char* key : {"model_backend", "data_loader_config", "enable_fused", "enable_jit", "enable_apex",
                          "inf_data_path", "wireup_info", "wireup_store"}) {
    table.accept_unused(key);
  }
  table.accept_fixed("dt", "1");  // the forecast is always the next stored state
}

}  // namespace

options::OptionTable run_option_table(RunConfig& config, RunRequest& request) {
  OptionTable table;
  add_general(table, config, request);
  add_parallel(table, config);
  add_batch(table, config);
  add_device(table, config);
  add_model(table, config);
  add_training(table, config);
  add_optimizer(table, config);
  add_data(table, config);
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
