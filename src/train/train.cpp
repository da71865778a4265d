// train(): from a configuration to a summary.
#include "src/train/train.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "model/vit_costs.h"
#include "model/vit_parameters.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/failure.h"
#include "parallel/comm/host_task.h"
#include "parallel/comm/operation.h"
#include "parallel/mesh/device_mesh.h"
#include "src/base/error.h"
#include "src/base/host.h"
#include "src/base/host_allocator.h"
#include "src/base/log.h"
#include "src/base/memory_tracker.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/base/trace.h"
#include "src/checkpoint/checkpoint_folder.h"
#include "src/config/config_text.h"
#include "src/config/load_run_config.h"
#include "src/kernels/gemm/device_products.h"
#include "src/machine/autotune.h"
#include "src/machine/device.h"
#include "src/plan/memory_plan.h"
#include "src/plan/time_plan.h"
#include "src/report/network_watch.h"
#include "src/report/run_log.h"
#include "src/report/run_record.h"
#include "src/report/run_speed.h"
#include "src/report/start_report.h"
#include "src/report/step_trace.h"
#include "src/report/step_window.h"
#include "src/report/stragglers.h"
#include "src/report/usage_sampler.h"
#include "src/train/data_source.h"
#include "src/train/run_folder.h"
#include "src/train/saving/resume.h"
#include "src/train/step_test.h"
#include "src/train/trainer.h"

namespace vit_hybrid::train {

namespace {

constexpr int kComeAgain = static_cast<int>(ErrorClass::kTemporary);

// `nodes`: how many ranks each has.
void print_start(const RunConfig& config, const DataSource& data, mesh::DeviceMesh& mesh, const std::string& folder) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t parameters = model::num_parameters(config.model);
  log_line(str(config.name, ": ", parameters, " parameters, dp ", parallel.dp, " x tp ", parallel.tp, " x pp ",
               parallel.pp, " on ", mesh.device().str(), ", ", counted(at::get_num_threads(), "thread"), " a rank"));
  log_line(str("  input     ", data.text));
  log_lines(report_kernels(config, mesh.device()).lines());
  log_lines(
      report_layout(config, config.data, compute_traits(config.data, config.checkpoint, mesh.device(), mesh.nodes()))
          .lines());
  std::vector<std::string> ways;
  for (const comm::Communicator* const group : {&mesh.data(), &mesh.tensor(), &mesh.pipeline()}) {
    if (group->size() > 1) {
      ways.push_back(str(group->axis(), ": ", group->back_end()));
    }
  }
  if (!ways.empty()) {
    log_line("  messages  " + join(ways, "; "));
  }
  if (config.schedule.scaling != LrScaling::kNone && config.find_lr == 0) {
    log_line(str("  rate      ", number_text(config.scaled(config.schedule.lr), 4), ": ", config.schedule.lr,
                 " of batches of ", config.schedule.lr_batch_size, ", scaled to ", config.global_batch_size));
  }
  const NodeReport between = report_nodes(config, mesh.nodes(), mesh.sum_blocks(), mesh.device().type());
  log_lines(between.lines);
  if (!between.warning.empty()) {
    log_warning(between.warning);
  }
  log_line(str("  run folder ", folder));
  if (config.find_lr > 0) {
    log_line(str("  test      of the learning rate, which rises in ", config.find_lr,
                 " steps; no validation and no checkpoint, whatever other options say"));
  }
  if (config.test_steps > 0) {
    const int64_t warm_up = warm_up_steps(config.test_steps);
    log_line(str("  test      ", config.test_steps, " steps, of which ", config.test_steps - warm_up,
                 " count, then some batches of a validation; no checkpoint, whatever other options say"));
  }
}

// Prints and writes what was measured; returns it, or null where there is nothing.
Json conclude_test(const std::optional<TestFigures>& figures, const TestedRun& run, const Json& ranks, RunLog& log) {
  if (!figures) {
    log_warning("the test was stopped before a step counted");
    return nullptr;
  }
  const Json record = to_json(*figures, run);
  Json with_ranks = record;
  put_ranks(with_ranks, ranks);
  log.event(with_ranks);
  log_lines(test_lines(*figures, run, ranks));
  return record;
}

// Speed of the run that `summary` is about, beside what was predicted, and where no test tells of them its time by
// phase and memory.
void conclude_speed(int64_t batch_size, const RunSpeed& speed, bool is_test, const std::optional<TimePlan>& predicted,
                    const Json& ranks, Json& summary) {
  summary["speed"] = to_json(speed);
  std::vector<std::string> lines = speed_lines(speed);
  if (!is_test) {  // which has tables of them
    const auto resources = resource_lines(ranks);
    lines.insert(lines.end(), resources.begin(), resources.end());
  }
  if (predicted) {
    summary["time"] = time_figures(*predicted, static_cast<double>(batch_size) / speed.samples_per_second, ranks);
    lines.push_back(time_line(summary["time"]));
  }
  log_lines(lines);
}

// Where --epochs gives the length of the run, the data decide whether its learning rates fit in.
void check_schedule(const RunConfig& config, const DataSource& data, const CheckpointReader* resumed,
                    const comm::MpiGroup& world) {
  comm::agreed(world, [&] {
    if (const std::string problem = planned_schedule(config, data, resumed).problem(); !problem.empty()) {
      throw Error(ErrorClass::kUsage, problem);
    }
  });
}

void note_resumption(const CheckpointReader& checkpoint, const RunConfig& config, RunLog& log) {
  const CheckpointInfo& info = checkpoint.info();
  log.event({{"kind", "resume"},
             {"path", checkpoint.path()},
             {"step", info.step},
             {"epoch", info.epoch + 1},
             {"samples_of_epoch", info.samples_of_epoch},
             {"written_by", info.layout}});
  log_line(str("resumed from ", checkpoint.path(), ": step ", info.step, ", epoch ", info.epoch + 1, " after ",
               info.samples_of_epoch, " of ", info.num_samples, " samples, written by ", info.layout));
  if (const auto line = earlier_format_line(checkpoint)) {
    log_line("  " + *line);
  }
  const auto changes = changed_options(info.config, config);
  if (!changes.empty()) {
    log_line(str("  other than in the checkpoint: ", join(changes)));
  }
}

// Which kernels were chosen, in the records and as a file; nothing where there was nothing to choose.
void note_kernels(const RunFolder& folder, RunLog& log, const comm::MpiGroup& world) {
  if (saved_kernels().empty()) {
    return;
  }
  Json record = {{"kind", "kernels"}};
  record.update(kernel_choices_json());
  log.event(record);
  if (world.rank() == 0) {
    write_text_file(folder.path() + "/kernels.txt", saved_kernels());
  }
}

// A training run, stage by stage: what a stage makes is there for those after it, and lives as long as the run.
class Run {
 public:
  Run(const RunConfig& config, comm::MpiSession& session)
      : config_(config),
        session_(session),
        world_(session.world()),
        time_limit_(TimeLimit::of_this_job(config.checkpoint.time_limit)) {}

  int train() {
    take_machine();
    open_folder();
    find_checkpoint();
    connect_groups();
    begin_message_thread();
    open_dataset();
    add_windows();
    make_trainer();
    if (trainer_->is_over()) {
      say_that_nothing_is_left();
      return 0;
    }
    fit_windows();
    trainer_->prepare();
    choose_device_kernels();
    begin_records();
    seconds_to_first_step_ = since_start_.seconds();
    phase_.reset();
    trainer_->run();
    usage_->stop();
    phase_.emplace("end of the run");
    conclude();
    return exit_code();
  }

 private:
  // What signals and a full memory do, and what the rank computes with.
  void take_machine() {
    comm::set_memory_advice(
        [config = config_](const MemoryFailure& failure) { return memory_advice(config, config.data, failure); });
    watch_stop_signals(parse_signals(config_.checkpoint.preempt_signals));
    machine_ = set_up_machine(config_, config_.data, ModelPurpose::kTraining, world_);
    if (machine_.device.is_cpu() && at::get_num_threads() * session_.place().node_size > machine_.node_cores) {
      count_seconds_without_core();  // there nobody is slow because others have the core
    }
    usage_.emplace(UsageOptions{config_.usage_interval, session_.place().node_rank == 0, config_.energy_counters,
                                machine_.device});
    if (const std::string problem = trace::attach_profiler(); !problem.empty()) {
      log_warning("a profiler that reads NVTX is attached (NVTX_INJECTION64_PATH) and will see no ranges: " + problem);
    }
    predict_time();
    if (machine_.device.is_cpu() && session_.place().num_nodes > 1) {
      network_.emplace(world_);
    }
  }

  // By --machine.
  void predict_time() {
    if (config_.machine.empty()) {
      return;
    }
    const std::string text = read_for_all(world_, config_.machine);
    const auto ranks_per_node = static_cast<int>(world_.max(session_.node().size()));
    std::string warning;
    comm::agreed(world_, [&] {
      const MachineFile machine = parse_machine_file(text, config_.machine);
      require_rates(machine, config_.machine, config_.precision.kind, machine_.device.type(),
                    {world_.size(), ranks_per_node});
      predicted_time_ = plan_time(config_, config_.data, machine, ranks_per_node, at::get_num_threads());
      warning = other_population(config_.machine, machine, ranks_per_node, at::get_num_threads());
    });
    if (!warning.empty()) {
      log_warning(warning);
    }
  }

  void open_folder() {
    phase_.emplace("start of the run");
    folder_.emplace(config_, world_);
    checkpoints_ = config_.checkpoint.dir.empty() ? folder_->checkpoints_path() : config_.checkpoint.dir;
  }

  // What the run goes on from; else the weights that --init-from names.
  void find_checkpoint() {
    resumption_.emplace(config_.checkpoint, config_.run_dir, world_);
    if (!config_.checkpoint.init_from.empty() && resumption_->checkpoint() == nullptr) {
      initial_.emplace(world_, config_.checkpoint.init_from);
    }
  }

  // Of --sum-blocks; a resumed run goes on with those of its checkpoint, where it has as many ranks.
  std::vector<int> sum_blocks() const {
    const std::string& given = config_.parallel.sum_blocks;
    const std::string& wanted = given == "auto" && resumed() != nullptr ? resumed()->info().sum_blocks : given;
    const auto blocks = parse_sum_blocks(wanted, world_.size());
    return blocks ? *blocks : world_.node_sizes();
  }

  // Anew where the run falls back on a checkpoint of other sums.
  void connect_groups() {
    const std::vector<int> blocks = sum_blocks();
    if (mesh_ && mesh_->sum_blocks() == blocks) {
      return;
    }
    const comm::PhaseScope phase("building of the groups");
    comm::TransportOptions options = transport_options(config_.parallel);
    options.sum_blocks = blocks;
    mesh_.emplace(parallel_dims(config_.parallel), world_, machine_.device, options);
  }

  void begin_message_thread() {
    if (!config_.parallel.communication_thread || world_.size() == 1) {
      return;
    }
    if (!machine_.device.is_cpu()) {
      log_warning(str(comm::kMessageThreadOption, " has no effect on GPUs: NCCL moves messages by itself"));
      return;
    }
    std::optional<Error> problem;
    if (!session_.serializes()) {
      problem.emplace(ErrorClass::kUsage, str(comm::kMessageThreadOption, " is not on the command line itself"),
                      "give it there: MPI is started for it before anything else is read");
    }
    comm::agree(world_, problem);
    message_thread_.emplace();
  }

  void open_dataset() {
    process_start_ = process_usage().resident_bytes;
    const comm::PhaseScope phase("opening of the data");
    data_.emplace(open_data(config_.model, config_.data, config_.seed, world_));
    if (const std::string remark = small_data(config_, data_->num_train_samples); !remark.empty()) {
      log_warning(remark);
    }
    log_.emplace(data_->train->channel_names(), config_.log_interval);
  }

  // What is done beside training at some of the steps: a test, --find-lr, --profile-steps, --trace.
  void add_windows() {
    if (config_.find_lr > 0) {
      range_.emplace(config_.find_lr);
    }
    if (config_.test_steps > 0) {
      test_.emplace(config_.test_steps, *usage_);
    }
    // In this order, so that no profile has the writing of a trace.
    if (config_.profile.any()) {
      windows_.push_back(std::make_unique<StepProfile>(config_.profile, !machine_.device.is_cpu(), world_));
    }
    if (config_.trace.any()) {
      windows_.push_back(std::make_unique<StepTrace>(config_.trace, *mesh_, world_, folder_->trace_path()));
    }
  }

  // A trainer with the state that it starts from: of the checkpoint that the resumption has in the end.
  void make_trainer() {
    for (;;) {
      if (resumed() != nullptr) {
        check_resumable(*resumed(), config_, data_->described, world_);
      }
      check_schedule(config_, *data_, resumed(), world_);
      choose_host_kernels();
      pool_host_tensors();
      trainer_ = std::make_unique<Trainer>(
          config_, world_, *mesh_, *data_, *log_,
          TrainerOptions{checkpoints_, resumed(), initial_ ? &*initial_ : nullptr, range_ ? &*range_ : nullptr,
                         test_ ? &*test_ : nullptr, windows(), &*usage_, network_ ? &*network_ : nullptr, time_limit_});
      const std::optional<Error> damage = load_state();
      if (!damage) {
        resumption_->settle();
        return;
      }
      trainer_.reset();  // half restored
      resumption_->fall_back(*damage);
      connect_groups();
    }
  }

  // What is wrong with the checkpoint that is resumed, found when it was read.
  std::optional<Error> load_state() {
    try {
      trainer_->load();
    } catch (const comm::AgreedError& error) {
      if (resumed() == nullptr || error.error_class() != ErrorClass::kBadData) {
        throw;
      }
      return error;
    }
    return std::nullopt;
  }

  void choose_host_kernels() {
    if (machine_.device.is_cpu()) {
      choose_host_kernel(config_, kernels::HostLayer::Passes::kForwardAndBackward, resumed_kernels(), world_);
    }
  }

  std::vector<StepWindow*> windows() const {
    std::vector<StepWindow*> result;
    std::transform(windows_.begin(), windows_.end(), std::back_inserter(result), [](const auto& w) { return w.get(); });
    return result;
  }

  void fit_windows() {
    for (const auto& window : windows_) {
      comm::agreed(world_, [&] { window->fit(trainer_->step(), trainer_->last_step()); });
    }
  }

  // What a run that goes on where it had ended says; it writes nothing.
  void say_that_nothing_is_left() const {
    log_line(str("nothing is left to do: the checkpoint is of step ", trainer_->step(), " and the run has ",
                 trainer_->total_steps(), "; give a larger --steps or --epochs"));
    if (world_.rank() == 0 && folder_->is_continued() && !is_there(folder_->summary_path())) {
      log_warning(str(folder_->path(), " has no summary.json: the run was ended before it wrote one"));
    }
  }

  void choose_device_kernels() {
    choose_kernels(config_, trainer_->micro_batch_sizes(), resumed_kernels(), machine_.device, world_);
  }

  // The run's files and first records, and the lines that say what it is.
  void begin_records() {
    RunRecords records = folder_->open(config_, world_);
    records.metrics.cut_after(resumed() != nullptr ? resumed()->info().step : -1);
    log_->open(std::move(records.metrics));
    usage_->write_to(std::move(records.usage));
    if (world_.rank() == 0) {
      Json start = start_record(config_, session_, machine_.node_cores);
      start["layout"]["sum_blocks"] = mesh_->sum_blocks();
      start["links"] = network_ ? network_->start_json() : Json();
      start["kernels"] = to_json(report_kernels(config_, machine_.device));
      log_->event(start);
    }
    if (resumed() != nullptr) {
      note_resumption(*resumed(), config_, *log_);
    }
    note_kernels(*folder_, *log_, world_);
    print_start(config_, *data_, *mesh_, folder_->path());
    if (network_ && world_.rank() == 0) {
      log_line(network_->start_line());
    }
    if (predicted_time_) {
      log_line(str("  time      as --machine predicts it: ", time_text(*predicted_time_)));
    }
  }

  // What the run was, as lines and as summary.json. Ranks say what they did; rank 0 alone has rows of all.
  void conclude() {
    const mesh::Coordinate& at = mesh_->coordinate();
    const ReplicaPlan replica = plan_replica(config_, on(at, mesh::Axis::kData));
    const ModelPlace place{on(at, mesh::Axis::kPipeline), on(at, mesh::Axis::kTensor)};
    const MemoryPlan predicted =
        plan_memory(config_, config_.data, replica, place,
                    compute_traits(config_.data, config_.checkpoint, machine_.device, mesh_->nodes()));
    Finish finish;
    finish.ranks = gather_rank_reports({place.stage, trainer_->total_seconds(), trainer_->total_work(),
                                        trainer_->slow_spells(), predicted, process_start_},
                                       machine_.device, world_);
    finish.communication = communication_record(config_, {replica, place, mesh_->nodes(), trainer_->num_steps()},
                                                machine_.device.type(), world_);
    finish.usage = usage_->figures(trainer_->num_samples(), finish.ranks, world_);
    if (test_) {
      finish.tested = test_->figures(world_);
    }
    finish.speed = measured_speed(finish.tested);
    if (world_.rank() == 0) {
      write_summary(finish);
    }
    log_line(str("run folder: ", folder_->path()));
  }

  // What ranks have found out together at the end, for rank 0.
  struct Finish {
    Json ranks;  // gather_rank_reports()
    Json communication;
    Json usage;
    std::optional<TestFigures> tested;
    std::optional<RunSpeed> speed;  // nothing where no step was done
  };

  // Collective over the world.
  std::optional<RunSpeed> measured_speed(const std::optional<TestFigures>& tested) const {
    FinishedRun run{tested ? tested->samples_per_second.median : log_->median_samples_per_second(),
                    trainer_->total_seconds().step, tested.has_value(), trainer_->stop_reason().has_value()};
    if (run.samples_per_second == 0.0) {
      return std::nullopt;
    }
    world_.broadcast(&run.step_seconds, sizeof run.step_seconds, 0);  // by which all decide alike
    return measure_run_speed(config_.model, config_.precision, config_.parallel.ranks_per_gpu, run, machine_, world_);
  }

  void write_summary(const Finish& finish) {
    Json summary = log_->final_figures();
    summary["interrupted"] = trainer_->stop_reason().has_value();
    summary["seconds_to_first_step"] = seconds_to_first_step_;
    summary["kernels"] = to_json(report_kernels(config_, machine_.device));
    summary["communication"] = finish.communication;
    summary["network"] = network_ ? network_->spells() : Json::array();
    summary["deciding"] = deciding_rank(finish.ranks, trainer_->num_steps());
    summary.update(finish.usage);
    log_->warn_of_skipped_steps();
    if (test_) {
      summary["test"] = conclude_test(finish.tested, trainer_->tested_run(), finish.ranks, *log_);
    } else if (range_) {
      summary["find_lr"] = range_->to_json();
      log_lines(range_->lines());
    } else {
      log_->print_table();
    }
    if (finish.speed) {
      conclude_speed(config_.global_batch_size, *finish.speed, finish.tested.has_value(), predicted_time_, finish.ranks,
                     summary);
    }
    if (const std::string line = communication_line(finish.communication); !line.empty()) {
      log_line(line);
    }
    if (!summary["deciding"].is_null()) {
      log_line(deciding_line(summary["deciding"]));
    }
    log_line(energy_line(summary["energy"]));
    put_ranks(summary, finish.ranks);
    if (summary.contains("ranks")) {
      std::filesystem::remove(folder_->ranks_path());  // of an earlier part
    } else {
      write_rank_rows(folder_->ranks_path(),
                      {{"ranks", finish.ranks}, {"usage", summary.value("usage", Json::array())}});
      summary.erase("usage");
    }
    write_json_file(folder_->summary_path(), summary);
  }

  int exit_code() const {
    const auto& reason = trainer_->stop_reason();
    if (!reason) {
      return 0;
    }
    const bool is_saved = config_.checkpoint.keep > 0;
    log_warning(str("stopped by ", *reason, " after step ", trainer_->step(),
                    is_saved ? "; go on with --resume " + checkpoints_
                             : str("; nothing was saved (",
                                   test_    ? "--test-steps"
                                   : range_ ? "--find-lr"
                                            : "--keep-checkpoints none",
                                   ")")));
    return kComeAgain;
  }

  const CheckpointReader* resumed() const { return resumption_->checkpoint(); }
  std::string resumed_kernels() const { return resumed() != nullptr ? resumed()->info().kernels : ""; }

  const RunConfig& config_;
  comm::MpiSession& session_;
  const comm::MpiGroup& world_;
  const TimeLimit time_limit_;
  const Timer since_start_;
  const MemoryTracker::Attachment attachment_;
  Machine machine_{at::kCPU};
  std::optional<UsageSampler> usage_;
  std::optional<NetworkWatch> network_;     // of several nodes
  std::optional<TimePlan> predicted_time_;  // with --machine
  double seconds_to_first_step_ = 0.0;
  std::optional<comm::PhaseScope> phase_;
  std::optional<mesh::DeviceMesh> mesh_;
  std::optional<comm::MessageThread> message_thread_;
  std::optional<RunFolder> folder_;
  std::string checkpoints_;    // their folder
  int64_t process_start_ = 0;  // bytes
  std::optional<DataSource> data_;
  std::optional<Resumption> resumption_;
  std::optional<CheckpointReader> initial_;
  std::optional<RunLog> log_;
  std::optional<StepTest> test_;
  std::optional<LrRange> range_;
  std::vector<std::unique_ptr<StepWindow>> windows_;  // --profile-steps, --trace
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace

int train(const RunConfig& config, comm::MpiSession& session) {
  return Run(config, session).train();
}

}  // namespace vit_hybrid::train
