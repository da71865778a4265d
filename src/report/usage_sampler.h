// UsageSampler: once a second how the machine is used, and the energy of a run by stage.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/device/energy_meter.h"
#include "src/base/host.h"
#include "src/base/timer.h"
#include "src/report/metrics_log.h"

namespace vit_hybrid::train {

/// What a run does at one time. Saving is the time in which training stands still for a checkpoint.
enum class RunStage : size_t { kStart, kTraining, kValidation, kSaving };
inline constexpr std::array<const char*, 4> kRunStages = {"start", "training", "validation", "saving"};

/// Of one rank: the energy counters that it is to read.
struct Meters {
  bool has_packages = false;  ///< the rank reads those of its node's processors
  bool has_gpu = false;       ///< and of its GPU
  Energy packages = {};       ///< since the meters began
  Energy gpu = {};
};

/// Seconds and energy by stage of a run on one rank. Pure: it is told the readings.
class StageEnergy {
 public:
  /// At `seconds` the counters stood at `now`: what they rose by since the last call is the stage's. With `is_sample`
  /// the mean power since the last sample may be its peak.
  void add(RunStage stage, double seconds, const Meters& now, bool is_sample);
  /// The counters and the time at the last sample.
  const Meters& last_sample() const { return last_sample_; }
  double last_sample_seconds() const { return last_sample_seconds_; }
  /// {"start": {"seconds", "packages": {"joules", "peak_watts"}, "gpu": ...}, ...}: of the stages that were, and of the
  /// meters that this rank has; {"missing": reason} for a counter that cannot be read.
  Json to_json() const;

 private:
  struct Counter {
    double joules = 0.0;
    double peak_watts = 0.0;
  };
  struct Stage {
    double seconds = 0.0;
    Counter packages;
    Counter gpu;
  };

  Meters last_;
  double last_seconds_ = 0.0;
  Meters last_sample_;
  double last_sample_seconds_ = 0.0;
  std::array<Stage, kRunStages.size()> stages_;
};

/// Where a sampler looks, and how often.
struct UsageOptions {
  double interval = 1.0;         ///< seconds; 0: it does not look by itself
  bool meters_node = false;      ///< on one rank of each node
  std::string package_counters;  ///< folder: PackageEnergyMeter
  c10::Device device = c10::kCPU;
};

/// Looks on one rank of each node, and on each rank that has a GPU; elsewhere it does nothing. A thread of its own
/// reads /proc, the processors' energy counters and NVML.
class UsageSampler {
 public:
  /// Begins, with the stage kStart.
  explicit UsageSampler(const UsageOptions& options);
  ~UsageSampler();
  UsageSampler(const UsageSampler&) = delete;
  UsageSampler& operator=(const UsageSampler&) = delete;

  /// From now on each sample is a record of `log`. One that cannot be written is warned of and is the last.
  void write_to(MetricsLog log);

  /// A stage, until the next begins.
  void enter(RunStage stage);
  RunStage stage() const { return stage_; }
  /// Energy until now.
  Meters read();

  /// The last sample; nothing is measured behind it.
  void stop();

  /// For summary.json, after stop(): {"usage": one object for each rank that looked, "energy": of all, by stage}; on
  /// rank 0, and empty elsewhere.
  /// `samples` were trained, and the steps of all `ranks` (gather_rank_reports()) took the time by which the energy of
  /// training is shared among their parts. Collective over `world`; the same on all ranks.
  Json figures(int64_t samples, const Json& ranks, const comm::MpiGroup& world) const;

 private:
  // Mean and maximum of a quantity.
  struct Figure {
    double sum = 0.0;
    double most = 0.0;
    int64_t count = 0;
    void add(const std::optional<double>& value);
  };
  enum Quantity : size_t {
    kNodeCpu,
    kNodeMemory,
    kProcessCpu,
    kProcessMemory,
    kGpu,
    kGpuMemoryBusy,
    kGpuMemory,
    kPackageWatts,
    kGpuWatts,
    kNumQuantities
  };
  using Sample = std::array<std::optional<double>, kNumQuantities>;

  bool looks() const { return meters_.has_packages || meters_.has_gpu; }
  void run();
  Json take_sample();
  void account(double seconds, bool is_sample);
  Sample sample(double seconds, const Meters& before);
  static Json to_json(const Sample& sample);
  void write(const Json& record);
  Json own_usage(const comm::MpiGroup& world) const;

  UsageOptions options_;
  Timer since_start_;
  std::mutex mutex_;  // of what is below, up to stops_
  PackageEnergyMeter package_meter_;
  GpuMeter gpu_meter_;
  Meters meters_;  // as read last
  StageEnergy energy_;
  RunStage stage_ = RunStage::kStart;
  NodeUsage last_node_;
  ProcessUsage last_process_;
  std::array<Figure, kNumQuantities> figures_;
  std::optional<MetricsLog> given_;
  bool stops_ = false;
  MetricsLog log_;  // of the thread, and when it has ended of stop()
  std::condition_variable wake_;
  std::thread thread_;  // none where it does not look by itself
};

/// The sampler is in a stage while this object lives, and then in the one before.
class StageScope {
 public:
  StageScope(UsageSampler* sampler, RunStage stage);
  ~StageScope();
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;

 private:
  UsageSampler* sampler_;
  RunStage before_ = RunStage::kStart;
};

/// `energy` of summary.json from what the ranks measured: {"source", "stages", "joules_per_sample", "within_step"}, or
/// {"unavailable": reason}. `own`: of each rank what StageEnergy says, or null. A counter counts where every rank that
/// is to read it can. Pure.
Json energy_figures(const Json& own, int64_t samples, const Json& ranks);

/// Energy and power for people.
std::string energy_line(const Json& energy);

}  // namespace vit_hybrid::train
