// RunConfig: the whole configuration of a run; StepConfig: what of it a training step computes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/datasets/augmentation.h"
#include "data/datasets/coordinates.h"
#include "data/datasets/field_roles.h"
#include "data/reading/posix_file.h"
#include "model/recompute.h"
#include "model/vit_options.h"
#include "parallel/mesh/device_mesh.h"
#include "parallel/zero/optimizer_options.h"
#include "parallel/zero/step_control.h"
#include "src/base/device/energy_meter.h"
#include "src/config/lr_schedule.h"
#include "src/config/option_table.h"

namespace vit_hybrid::train {

/// The type of parameters and activations, or how fp32 products are computed; zero::PrecisionPolicy says the rest.
enum class Precision { kFp32, kFp64, kTf32, kBf16, kFp16 };
/// As the option has them.
inline constexpr std::array kPrecisionNames = {"fp32", "fp64", "tf32", "bf16", "fp16"};
inline const char* precision_name(Precision precision) {
  return kPrecisionNames.at(static_cast<size_t>(precision));
}
/// Of model::Recompute, likewise.
inline constexpr std::array kRecomputeNames = {"none", "selective", "full"};
/// The type in which gradients are added up, or reduced: that of the master weights, or that of the parameters.
enum class GradientType { kMaster, kHalf };
enum class DeviceChoice { kAuto, kCpu, kCuda };
/// kAuto is gone after resolve().
enum class DataKind { kAuto, kHdf5, kSynthetic, kBuiltin };
/// Whether the buffers of batches are page-locked; kAuto: where they are copied to a GPU.
enum class PinMemory { kAuto, kOn, kOff };
enum class CudaGraph { kAuto, kOn, kOff };
/// What a forecast's model predicts: the next state, or its difference from the present one (data::IncrementTarget).
enum class TargetKind { kState, kIncrement };
/// Whether the data are copied to each node first.
enum class StageData { kNone, kNode };
using zero::OptimizerKind;
enum class LrScaling { kNone, kSqrt, kLinear };

struct ParallelConfig {
  int dp = 0;  ///< 0 ('auto'): the ranks that are left; a number after resolve()
  int tp = 1;
  int pp = 1;
  bool tp_overlap = false;            ///< forward's sums over tp are hidden: micro_batch_parts()
  std::string order = "tp-dp-pp";     ///< fastest axis first
  std::string sum_blocks = "auto";    ///< auto, nodes, or sizes that parse_sum_blocks() knows
  int zero = 1;                       ///< 0: every rank keeps the whole optimizer state
  int zero_shard_size = 0;            ///< ranks of dp that split the state among them; 0 ('auto'): all
  std::string schedule = "1f1b";      ///< 1f1b or gpipe
  int64_t micro_batch_size = 0;       ///< samples; 0 ('auto') is gone after resolve()
  double bucket_mb = 0.0;             ///< MiB; 0 ('auto'): as suits the device, see TrainingOptions
  int dp_max_ctas = 0;                ///< blocks of a GPU for NCCL on the data axis; 0 ('auto'): NCCL's choice
  bool communication_thread = false;  ///< messages between hosts have a thread of their own
  double timeout = 600.0;             ///< seconds a communication may take
  int threads = 0;                    ///< of one rank; 0 ('auto'): OMP_NUM_THREADS, else its share of its cores
  int ranks_per_gpu = 1;              ///< ranks that share a GPU

  int model_size() const { return tp * pp; }
  /// Parts that the optimizer state is split into; of a resolved configuration.
  int state_shards() const { return zero == 0 ? 1 : zero_shard_size == 0 ? dp : zero_shard_size; }
  int64_t bucket_bytes() const;  ///< of --bucket-mb; 0: 'auto'
  /// Parts of a micro-batch that take turns: VitStage::forward().
  int micro_batch_parts() const { return tp_overlap && tp > 1 ? 2 : 1; }
};

/// Sizes of runs of ranks, "4,4", that add up to `num_ranks`; none where the text is anything else.
std::optional<std::vector<int>> parse_sum_blocks(const std::string& text, int num_ranks);

struct PrecisionConfig {
  Precision kind = Precision::kFp32;
  double loss_scale = 0.0;  ///< of fp16; 0: dynamic
  GradientType gradient = GradientType::kMaster;
  GradientType reduce = GradientType::kMaster;

  bool is_half() const { return kind == Precision::kBf16 || kind == Precision::kFp16; }
};

struct DataConfig {
  DataKind kind = DataKind::kAuto;
  std::string train_data;    ///< folder of HDF5 files (forecast) or one file (classification)
  std::string valid_data;    ///< empty: no validation
  std::string stats;         ///< folder with the three files below
  std::string global_means;  ///< after resolve(): stats/global_means.npy unless given; empty without stats
  std::string global_stds;   ///< likewise
  std::string time_means;    ///< empty: stats/time_means.npy where that exists
  std::string dataset_name;  ///< after resolve(): "fields" or "images" unless given
  std::string channels;      ///< of fields, by name (data::FieldQuery::channels); empty: all of the dataset
  std::string variables;     ///< data::FieldQuery::variables
  data::FieldRoles roles;    ///< of fields: what is taken and predicted beside channels that are both
  TargetKind target = TargetKind::kState;
  std::string train_dates;  ///< data::FieldQuery::dates of the training data
  std::string valid_dates;  ///< and of the validation data
  std::string labels_name = "labels";
  data::Lead lead;  ///< of forecasts, as the options have it (data::asked_lead())
  data::IoMode io = data::IoMode::kAuto;
  int io_threads = -1;     ///< background reading threads; 0: the main thread reads when it needs the data; -1: 'auto'
  int prefetch_depth = 0;  ///< batches read ahead; 0: 'auto'
  PinMemory pin_memory = PinMemory::kAuto;
  StageData stage = StageData::kNone;
  std::string stage_dir;       ///< for the copies of kNode; empty: memory (/dev/shm), else TMPDIR
  std::string mpiio_hints;     ///< key=value,...
  int64_t limit_nsamples = 0;  ///< keep the first n training samples; 0: all
  int64_t limit_nsamples_val = 0;
  bool drop_last = false;
  int64_t valid_batch_size = 0;  ///< global; 0 ('auto') is gone after resolve(): the global batch size
  data::Interpolation interpolation = data::Interpolation::kBilinear;  ///< of images that are resized
  int64_t valid_resize = 0;         ///< pixels; side of the images that validation takes the centre of; 0: auto
  double mixup = 0.0;               ///< alpha; 0: none
  int64_t generated_samples = 512;  ///< training samples of synthetic and builtin data
  int64_t generated_valid_samples = 64;
  bool validates = true;  ///< not in a --find-lr; after resolve()

  /// What the data take beside batches, as look_at_data() has found it; 0 where it has not looked.
  int64_t decoding_bytes = 0;     ///< of a thread that reads: a chunk and what it is decoded to
  int64_t static_bytes = 0;       ///< of each data set: its static fields
  int64_t climatology_bytes = 0;  ///< of validation: the time means
  int64_t image_bytes = 0;        ///< of an image as it is stored
  int64_t images = 0;             ///< that are there for training
  int64_t valid_images = 0;

  /// Of training, where the options say it; 0: files do.
  int64_t known_samples() const { return known(generated_samples, limit_nsamples); }
  int64_t known_valid_samples() const { return known(generated_valid_samples, limit_nsamples_val); }
  int64_t generated_for_validation() const { return validates ? generated_valid_samples : 0; }
  /// Whether there are data to validate with; after resolve().
  bool has_validation() const {
    return kind == DataKind::kHdf5 ? validates && !valid_data.empty() : generated_for_validation() > 0;
  }

 private:
  int64_t known(int64_t generated, int64_t limit) const {
    const int64_t all = kind == DataKind::kBuiltin || kind == DataKind::kSynthetic ? generated : limit;
    return limit > 0 ? std::min(all, limit) : all;
  }
};

/// The weights of a forecast's loss.
struct LossConfig {
  bool latitude_weights = false;  ///< rows count by data::latitude_weights()
  std::string channel_weights;    ///< empty: channels count alike; else kIncrementWeights, a .npy file, or a list
};

struct OptimizerConfig : zero::OptimizerOptions {
  double clip_norm = 0.0;  ///< largest global gradient norm; 0: no clipping
};

struct ScheduleConfig {
  LrSchedule::Kind kind = LrSchedule::Kind::kCosine;
  double lr = 5e-4;          ///< at lr_batch_size where it is scaled; see lr_schedule()
  double min_lr = 0.0;       ///< likewise
  double decay_share = 0.2;  ///< of the iterations, with kWsd
  LrScaling scaling = LrScaling::kNone;
  int64_t lr_batch_size = 16;
  int64_t warmup = 0;   ///< iterations
  int64_t steps = 128;  ///< iterations; 0: given by epochs
  int64_t epochs = 0;   ///< 0: given by steps
};

struct CheckpointConfig {
  std::string resume = "none";  ///< none, latest, auto, or a path
  std::string load;             ///< folder whose checkpoint the run goes on from, if it has one; empty: none
  int64_t every = 0;            ///< iterations; 0: only at the end and when stopped
  bool at_start = false;        ///< one before the first iteration
  bool async = false;           ///< written by a thread while training goes on
  int64_t keep = 2;             ///< newest ones, besides the best; 0: none is ever saved
  std::string dir;              ///< empty: checkpoints/ in the run's folder
  double lock_renewal = 20.0;   ///< seconds between renewals of the lock of the folders that the run writes to
  double time_limit = 0.0;      ///< seconds; 0: none but Slurm's
  std::string init_from;        ///< weights that a new training starts from; empty: none
  bool init_from_partial = false;
  std::string preempt_signals = "USR1,USR2,TERM,INT";

  /// Whether each rank holds a copy of its state, from which they are written.
  bool copies_state() const { return async && keep > 0; }
  bool resumes() const { return resume != "none" || !load.empty(); }
  /// Whether the run's own folder is looked at for a checkpoint.
  bool resumes_own_run() const { return resume == "latest" || resume == "auto"; }
};

/// What a training step computes, and with what: the model, its loss and optimizer, and how they are cut and rounded.
struct StepConfig {
  model::VitOptions model;
  LossConfig loss;
  ParallelConfig parallel;
  OptimizerConfig optimizer;
  PrecisionConfig precision;
  int64_t global_batch_size = 16;
  model::Recompute recompute = model::Recompute::kNone;
  bool deterministic = false;  ///< only kernels that give the same bits each time
  bool retune = false;         ///< measure kernels again instead of using a checkpoint's choice
  CudaGraph cuda_graph = CudaGraph::kAuto;
  DeviceChoice device = DeviceChoice::kAuto;
  uint64_t seed = 1;

  bool is_forecast() const { return model.task == model::Task::kForecast; }
  /// Most samples a replica has in a step.
  int64_t replica_batch_size() const;
  /// Micro-batches of the replica with most samples.
  int num_micro_batches() const;
};

/// All values of one run. Defaults here are the defaults of the options.
struct RunConfig : StepConfig {
  std::string preset;  ///< name of the preset that model started from; may be empty
  DataConfig data;
  ScheduleConfig schedule;
  CheckpointConfig checkpoint;
  int64_t local_batch_size = 0;  ///< samples a replica; when positive, resolve() sets global_batch_size = dp x this
  int64_t log_interval = 10;
  int64_t histogram_every = 0;  ///< iterations; 0: no histograms
  int64_t test_steps = 0;       ///< of the test mode, which measures and writes no checkpoint; 0: a real run
  int64_t find_lr = 0;          ///< iterations of a learning-rate range test, which writes no checkpoint; 0: a real run
  options::StepRange trace;     ///< steps to record
  options::StepRange profile;   ///< steps to have a profiler capture
  double usage_interval = 1.0;  ///< seconds between two samples of how the machine is used; 0: none
  std::string energy_counters = PackageEnergyMeter::kCounters;  ///< folder of the processors' energy counters
  std::string run_dir;                                          ///< empty: runs_root/<name>-<time>
  std::string runs_root = "runs";
  std::string machine;  ///< file of a machine's rates, by which times are predicted; empty: none
  std::string name;     ///< after resolve(): the section or file of the configuration, the preset, or "builtin"

  /// Where the value of an option came from, as text: "preset weather-mp", "built-in default", "configs/a.yaml:12",
  /// "environment VIT_HYBRID_LR", "command line", "4 x embed-dim". Options at their default have no entry.
  std::map<std::string, std::string> origin;
  std::vector<std::string> unused_keys;  ///< keys of the reference workload's YAML that have no meaning here
  bool is_builtin_default = false;       ///< neither a configuration nor data was given

  /// Tests of a recipe, not runs of it: they leave no checkpoint.
  bool is_trial() const { return test_steps > 0 || find_lr > 0; }
  /// By whom an option was given: 2 the command line, 1 the environment, 0 others or nobody.
  int precedence(const std::string& option) const;
  /// A learning rate times sqrt(global_batch_size / lr_batch_size) with scaling kSqrt, times that ratio with kLinear
  /// (P. Goyal et al., arXiv:1706.02677, section 2.1).
  double scaled(double lr) const;
  /// The schedule of a run of `total` iterations, whose rates are scaled(), or of the range test of --find-lr.
  LrSchedule lr_schedule(int64_t total) const;
};

/// The mesh that a resolved configuration is for.
mesh::ParallelDims parallel_dims(const ParallelConfig& parallel);

/// The types that --precision, --grad-dtype and --reduce-dtype stand for.
zero::PrecisionPolicy precision_policy(const PrecisionConfig& precision);

/// Iterations of `epochs` epochs of `steps_of_epoch` each. Error(kUsage) where they are more than --steps may say.
/// Pure.
int64_t steps_of_epochs(int64_t epochs, int64_t steps_of_epoch);

/// Puts a number or name in the place of every 'auto', for `world_size` ranks. Pure. dp stays 0 where the ranks are not
/// a multiple of tp x pp.
void resolve(RunConfig& config, int world_size);

/// Every problem of a resolved configuration, each a sentence with the value and what is allowed. Pure: looks at no
/// file.
std::vector<std::string> problems(const RunConfig& config, int world_size);

/// Every path of the configuration that is not there or cannot be read. For one rank to ask.
std::vector<std::string> path_problems(const RunConfig& config);

}  // namespace vit_hybrid::train
