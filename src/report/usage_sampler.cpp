// UsageSampler: what its thread reads, what it makes of it, and the sums over ranks.
#include "src/report/usage_sampler.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/comm/operation.h"
#include "src/base/device/gpu_survey.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

constexpr const char* kCounters[] = {"packages", "gpu"};  // keys of StageEnergy::to_json()

// Where each quantity stands in a record and in summary.json.
constexpr std::array<std::pair<const char*, const char*>, 9> kPlaces = {{{"node", "cpu_percent"},
                                                                         {"node", "memory_bytes"},
                                                                         {"process", "cpu_percent"},
                                                                         {"process", "resident_bytes"},
                                                                         {"gpu", "utilisation_percent"},
                                                                         {"gpu", "memory_utilisation_percent"},
                                                                         {"gpu", "memory_bytes"},
                                                                         {"processors", "watts"},
                                                                         {"gpu", "watts"}}};

// Watts between two readings, where both are.
std::optional<double> watts(const Energy& before, const Energy& now, double seconds) {
  if (!before.joules || !now.joules || seconds <= 0.0) {
    return std::nullopt;
  }
  return (*now.joules - *before.joules) / seconds;
}

// A meter's sum over ranks by stage, or why there is none.
struct Metered {
  bool is_there = false;                                            // some rank has such a meter
  std::string missing;                                              // where one of them cannot be read
  std::array<std::pair<double, double>, kRunStages.size()> stages;  // joules and peak watts

  bool is_known() const { return is_there && missing.empty(); }
};

Metered metered_sum(const Json& own, const std::string& counter) {
  Metered sum;
  for (const Json& rank : own) {
    for (size_t stage = 0; stage < kRunStages.size(); ++stage) {
      if (!rank.is_object() || !rank.contains(kRunStages[stage]) || !rank[kRunStages[stage]].contains(counter)) {
        continue;
      }
      const Json& found = rank[kRunStages[stage]][counter];
      sum.is_there = true;
      if (found.contains("missing")) {
        sum.missing = found["missing"].get<std::string>();
      } else {
        sum.stages[stage].first += found["joules"].get<double>();
        sum.stages[stage].second += found["peak_watts"].get<double>();
      }
    }
  }
  return sum;
}

std::string source_text(const Metered& packages, const Metered& gpus) {
  const std::string processors = "processor packages (powercap)";
  if (!gpus.is_there) return processors;
  if (packages.is_known() && gpus.is_known()) return processors + " and GPUs (NVML)";
  return packages.is_known() ? str(processors, " without GPUs: ", gpus.missing)
                             : str("GPUs (NVML) without processors: ", packages.missing);
}

// The part that each phase has of the time of all steps of all ranks, and "rest" for what is left.
std::vector<std::pair<std::string, double>> shares_of_phases(const Json& ranks) {
  const std::vector<std::string> phases = {"data_wait", "forward", "backward", "reduce", "optimizer"};
  double all = 0.0;
  double rest = 1.0;
  for (const Json& rank : ranks) {
    all += rank["seconds"]["step"].get<double>();
  }
  std::vector<std::pair<std::string, double>> shares;
  for (const std::string& phase : phases) {
    double sum = 0.0;
    for (const Json& rank : ranks) {
      sum += rank["seconds"][phase].get<double>();
    }
    shares.emplace_back(phase, all > 0.0 ? std::min(sum / all, rest) : 0.0);
    rest -= shares.back().second;
  }
  shares.emplace_back("rest", rest);
  return shares;
}

}  // namespace

void StageEnergy::add(RunStage stage, double seconds, const Meters& now, bool is_sample) {
  Stage& of = stages_[static_cast<size_t>(stage)];
  of.seconds += seconds - last_seconds_;
  for (const auto& [counter, energy] :
       {std::pair(&Stage::packages, &Meters::packages), std::pair(&Stage::gpu, &Meters::gpu)}) {
    (of.*counter).joules += (now.*energy).joules.value_or(0.0) - (last_.*energy).joules.value_or(0.0);
    if (is_sample) {
      const auto power = watts(last_sample_.*energy, now.*energy, seconds - last_sample_seconds_);
      (of.*counter).peak_watts = std::max((of.*counter).peak_watts, power.value_or(0.0));
    }
  }
  last_ = now;
  last_seconds_ = seconds;
  if (is_sample) {
    last_sample_ = now;
    last_sample_seconds_ = seconds;
  }
}

Json StageEnergy::to_json() const {
  Json json = Json::object();
  for (size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = stages_[i];
    if (stage.seconds <= 0.0) continue;
    Json& of = json[kRunStages[i]];
    of["seconds"] = stage.seconds;
    const auto put = [&](const char* name, const Energy& energy, const Counter& counter) {
      const bool stands = energy.joules == 0.0 && last_seconds_ >= 1.0;  // nothing that computes takes no energy
      if (!energy.joules || stands) {
        of[name] = {{"missing", stands ? "the counter stands still" : energy.missing}};
        return;
      }
      // A stage between two samples has no other figure.
      of[name] = {{"joules", counter.joules},
                  {"peak_watts", std::max(counter.peak_watts, counter.joules / stage.seconds)}};
    };
    if (last_.has_packages) put(kCounters[0], last_.packages, stage.packages);
    if (last_.has_gpu) put(kCounters[1], last_.gpu, stage.gpu);
  }
  return json;
}

void UsageSampler::Figure::add(const std::optional<double>& value) {
  if (value) {
    sum += *value;
    most = count == 0 ? *value : std::max(most, *value);
    ++count;
  }
}

UsageSampler::UsageSampler(const UsageOptions& options)
    : options_(options),
      package_meter_(options.meters_node ? options.package_counters : ""),
      gpu_meter_(device_pci_address(options.device)),
      last_node_(node_usage()),
      last_process_(process_usage()) {
  meters_.has_packages = options.meters_node;
  meters_.has_gpu = !options.device.is_cpu();
  account(since_start_.seconds(), /*is_sample=*/true);
  if (looks() && options_.interval > 0.0) {
    thread_ = std::thread([this] { run(); });
  }
}

UsageSampler::~UsageSampler() {
  stop();
}

void UsageSampler::stop() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    wake_.notify_all();
    thread_.join();
    write(take_sample());
  } else if (!stops_) {
    stops_ = true;
    read();
  }
}

void UsageSampler::write_to(MetricsLog log) {
  const std::lock_guard lock(mutex_);
  given_ = std::move(log);
}

void UsageSampler::run() {
  use_allowed_processors();
  std::unique_lock lock(mutex_);
  const auto interval = std::chrono::duration<double>(options_.interval);
  while (!wake_.wait_for(lock, interval, [this] { return stops_; })) {
    lock.unlock();
    write(take_sample());  // without the lock: a file system may be slow, and a stage must not wait for it
    lock.lock();
  }
}

void UsageSampler::account(double seconds, bool is_sample) {
  if (meters_.has_packages) meters_.packages = package_meter_.read();
  if (meters_.has_gpu) meters_.gpu = gpu_meter_.read();
  energy_.add(stage_, seconds, meters_, is_sample);
}

void UsageSampler::enter(RunStage stage) {
  const std::lock_guard lock(mutex_);
  account(since_start_.seconds(), /*is_sample=*/false);
  stage_ = stage;
}

Meters UsageSampler::read() {
  const std::lock_guard lock(mutex_);
  account(since_start_.seconds(), /*is_sample=*/false);
  return meters_;
}

UsageSampler::Sample UsageSampler::sample(double seconds, const Meters& before) {
  Sample now;
  const ProcessUsage process = process_usage();
  now[kProcessCpu] = 100.0 * (process.cpu_seconds - last_process_.cpu_seconds) / seconds;
  now[kProcessMemory] = static_cast<double>(process.resident_bytes);
  last_process_ = process;
  if (options_.meters_node) {
    const NodeUsage node = node_usage();
    if (const double all = node.all - last_node_.all; all > 0.0) {
      now[kNodeCpu] = 100.0 * (node.busy - last_node_.busy) / all;
    }
    now[kNodeMemory] = static_cast<double>(node.memory_bytes);
    now[kPackageWatts] = watts(before.packages, meters_.packages, seconds);
    last_node_ = node;
  }
  if (meters_.has_gpu) {
    const GpuUsage gpu = gpu_meter_.usage();
    now[kGpu] = gpu.utilisation;
    now[kGpuMemoryBusy] = gpu.memory_utilisation;
    now[kGpuMemory] = gpu.memory_bytes;
    now[kGpuWatts] = watts(before.gpu, meters_.gpu, seconds);
  }
  return now;
}

// A record of usage.jsonl; null where the last sample was just now.
Json UsageSampler::take_sample() {
  constexpr double kLeastSeconds = 0.05;  // the counters move in steps of some milliseconds
  const std::lock_guard lock(mutex_);
  if (given_) {
    log_ = std::move(*given_);
    given_.reset();
  }
  const double now = since_start_.seconds();
  const double seconds = now - energy_.last_sample_seconds();
  const bool is_sample = seconds >= kLeastSeconds;
  const Meters before = energy_.last_sample();
  account(now, is_sample);
  if (!is_sample) {
    return nullptr;
  }
  const Sample values = sample(seconds, before);
  for (size_t i = 0; i < kNumQuantities; ++i) {
    figures_[i].add(values[i]);
  }
  Json record = {{"kind", "usage"}, {"stage", kRunStages[static_cast<size_t>(stage_)]}};
  if (const int64_t step = comm::run_position().step; step >= 0) {
    record["step"] = step;
  }
  record.update(to_json(values));
  return record;
}

// Bytes are whole, and of other quantities hundredths are more than the counters know.
Json UsageSampler::to_json(const Sample& sample) {
  static_assert(kPlaces.size() == kNumQuantities);
  Json json;
  for (size_t i = 0; i < kNumQuantities; ++i) {
    if (!sample[i]) continue;
    Json& place = json[kPlaces[i].first][kPlaces[i].second];
    if (std::string_view(kPlaces[i].second).ends_with("bytes")) {
      place = std::llround(*sample[i]);
    } else {
      place = std::round(*sample[i] * 100.0) / 100.0;
    }
  }
  return json;
}

void UsageSampler::write(const Json& record) {
  if (record.is_null() || !log_.is_open()) {
    return;
  }
  try {
    log_.write(record);
  } catch (const Error& error) {
    log_warning("usage.jsonl ends here, and the run goes on: " + error.message());
    log_ = MetricsLog();
  }
}

Json UsageSampler::own_usage(const comm::MpiGroup& world) const {
  Json json = {{"rank", world.rank()}, {"host", host_name()}, {"samples", figures_[kProcessCpu].count}};
  for (size_t i = 0; i < kNumQuantities; ++i) {
    if (const Figure& figure = figures_[i]; figure.count > 0) {
      json[kPlaces[i].first][kPlaces[i].second] = {{"mean", figure.sum / static_cast<double>(figure.count)},
                                                   {"max", figure.most}};
    }
  }
  return json;
}

Json UsageSampler::figures(int64_t samples, const Json& ranks, const comm::MpiGroup& world) const {
  if (options_.interval <= 0.0) {
    return {{"energy", {{"unavailable", "--usage-interval is off"}}}};
  }
  Json own = nullptr;
  if (looks()) {
    own = {{"usage", own_usage(world)}, {"energy", energy_.to_json()}};
  }
  const std::vector<std::string> texts = world.gather(own.dump());
  if (world.rank() != 0) {
    return Json::object();
  }
  Json usage = Json::array();
  Json energy = Json::array();
  for (const std::string& text : texts) {
    const Json of_rank = Json::parse(text);
    if (of_rank.is_object()) {
      usage.push_back(of_rank["usage"]);
      energy.push_back(of_rank["energy"]);
    }
  }
  return {{"usage", std::move(usage)}, {"energy", energy_figures(energy, samples, ranks)}};
}

StageScope::StageScope(UsageSampler* sampler, RunStage stage) : sampler_(sampler) {
  if (sampler_ != nullptr) {
    before_ = sampler_->stage();
    sampler_->enter(stage);
  }
}

StageScope::~StageScope() {
  if (sampler_ != nullptr) {
    sampler_->enter(before_);
  }
}

Json energy_figures(const Json& own, int64_t samples, const Json& ranks) {
  const Metered packages = metered_sum(own, kCounters[0]);
  const Metered gpus = metered_sum(own, kCounters[1]);
  if (!packages.is_known() && !gpus.is_known()) {
    const bool has_two = packages.is_there && gpus.is_there;
    return {{"unavailable", has_two ? packages.missing + "; " + gpus.missing : packages.missing + gpus.missing}};
  }
  Json json = {{"source", source_text(packages, gpus)}, {"stages", Json::object()}};
  for (size_t i = 0; i < kRunStages.size(); ++i) {
    if (!own[0].contains(kRunStages[i])) continue;
    const double seconds = own[0][kRunStages[i]]["seconds"].get<double>();
    double joules = 0.0;
    double peak = 0.0;
    for (const Metered* meter : {&packages, &gpus}) {
      if (meter->is_known()) {
        joules += meter->stages[i].first;
        peak += meter->stages[i].second;
      }
    }
    json["stages"][kRunStages[i]] = {
        {"seconds", seconds}, {"joules", joules}, {"mean_watts", joules / seconds}, {"peak_watts", peak}};
  }
  const char* const training = kRunStages[static_cast<size_t>(RunStage::kTraining)];
  if (samples > 0 && json["stages"].contains(training)) {
    const double joules = json["stages"][training]["joules"].get<double>();
    json["joules_per_sample"] = joules / static_cast<double>(samples);
    for (const auto& [phase, share] : shares_of_phases(ranks)) {
      json["within_step"][phase] = joules * share;
    }
  }
  return json;
}

std::string energy_line(const Json& energy) {
  if (energy.contains("unavailable")) {
    return "energy: not known; " + energy["unavailable"].get<std::string>();
  }
  std::vector<std::string> parts;
  for (const auto& [stage, figures] : energy["stages"].items()) {
    parts.push_back(str(stage, " ", number_text(figures["joules"].get<double>(), 4), " J (mean ",
                        number_text(figures["mean_watts"].get<double>(), 4), " W, peak ",
                        number_text(figures["peak_watts"].get<double>(), 4), " W)"));
  }
  const auto per_sample = energy.find("joules_per_sample");
  return str("energy: ", join(parts), per_sample == energy.end() ? "" : "; ",
             per_sample == energy.end() ? "" : number_text(per_sample->get<double>(), 4) + " J a sample of training",
             "; by ", energy["source"].get<std::string>());
}

}  // namespace vit_hybrid::train
