// train(): from a configuration to a summary.
#include "src/train/train.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "parallel/comm/agreement.h"
#include "parallel/comm/failure.h"
#include "parallel/comm/operation.h"
#include "parallel/comm/statistics.h"
#include "parallel/comm/watchdog.h"
#include "parallel/mesh/device_mesh.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory_tracker.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/checkpoint/checkpoint_folder.h"
#include "src/config/config_text.h"
#include "src/config/time_limit.h"
#include "src/kernels/gemm/device_products.h"
#include "src/machine/device.h"
#include "src/machine/model_memory.h"
#include "src/machine/placement.h"
#include "src/machine/rank_threads.h"
#include "src/machine/run_kernels.h"
#include "src/report/kernel_report.h"
#include "src/report/layout_report.h"
#include "src/report/rank_report.h"
#include "src/report/run_log.h"
#include "src/report/run_speed.h"
#include "src/report/start_record.h"
#include "src/train/data_source.h"
#include "src/train/run_folder.h"
#include "src/train/saving/resume.h"
#include "src/train/step_test.h"
#include "src/train/trainer.h"

namespace vit_hybrid::train {

namespace {

constexpr int kComeAgain = static_cast<int>(ErrorClass::kTemporary);

mesh::ParallelDims parallel_dims(const RunConfig& config) {
  return mesh::ParallelDims(config.parallel.dp, config.parallel.tp, config.parallel.pp, config.parallel.order);
}

void print_start(const RunConfig& config, const DataSource& data, const mesh::DeviceMesh& mesh, const Engine& engine,
                 const std::string& folder) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t parameters = model::num_parameters(config.model);
  log_line(str(config.name, ": ", parameters, " parameters, dp ", parallel.dp, " x tp ", parallel.tp, " x pp ",
               parallel.pp, " on ", mesh.device().str(), ", ", at::get_num_threads(), " threads a rank"));
  log_line(str("  input     ", data.text));
  for (const std::string& line : report_kernels(config, mesh.device()).lines()) {
    log_line(line);
  }
  for (const std::string& line : report_layout(config, engine.model().stages()).lines()) {
    log_line(line);
  }
  log_line(str("  run folder ", folder));
  if (config.test_steps > 0) {
    log_line(str("  test      ", config.test_steps,
                 " steps that are measured; no validation and no checkpoint, whatever other options say"));
  }
}

Json communication() {
  Json json = Json::array();
  for (const auto& axis : comm::statistics()) {
    Json operations;
    for (int i = 0; i < comm::kNumOperations; ++i) {
      const auto& count = axis.counts[static_cast<size_t>(i)];
      if (count.operations > 0) {
        operations[std::string(comm::operation_name(static_cast<comm::Operation>(i)))] = {
            {"operations", count.operations}, {"bytes", count.bytes}};
      }
    }
    json.push_back({{"axis", axis.axis},
                    {"ranks", axis.group_size},
                    {"blocked_seconds", axis.blocked_seconds},
                    {"rank_0", std::move(operations)}});
  }
  return json;
}

// Prints and writes what was measured; returns it, or null where there is nothing.
Json conclude_test(const StepTest& test, const TestedRun& run, const Json& ranks, RunLog& log, mesh::DeviceMesh& mesh) {
  const auto figures = test.figures(mesh.host_world());
  if (!figures) {
    log_warning("the test was stopped before a step counted");
    return nullptr;
  }
  const Json record = to_json(*figures, run);
  Json with_ranks = record;
  with_ranks["ranks"] = ranks;
  log.event(with_ranks);
  for (const std::string& line : test_lines(*figures, run, ranks)) {
    log_line(line);
  }
  return record;
}

// Speed of the run that `summary` is about, and where no test tells of them its time by phase and memory.
void conclude_speed(const RunConfig& config, const Engine& engine, Json& summary, mesh::DeviceMesh& mesh) {
  const bool is_test = summary.contains("test") && summary["test"].is_object();
  const Json& rate = is_test ? summary["test"]["samples_per_s_spread"]["median"] : summary["samples_per_s"];
  if (rate == 0.0) {
    return;  // no step was done
  }
  const FinishedRun run{rate, summary["ranks"][0]["seconds"]["step"], is_test, summary["interrupted"]};
  const RunSpeed speed = measure_run_speed(config, run, mesh);
  summary["speed"] = to_json(speed);
  std::vector<std::string> lines = speed_lines(speed);
  if (!is_test) {  // which has tables of them
    const auto resources =
        resource_lines(summary["ranks"], report_layout(config, engine.model().stages()).activation_bytes);
    lines.insert(lines.end(), resources.begin(), resources.end());
  }
  for (const std::string& line : lines) {
    log_line(line);
  }
}

void finish(const RunConfig& config, const RunFolder& folder, RunLog& log, const Trainer& trainer,
            const std::optional<StepTest>& test, mesh::DeviceMesh& mesh, double seconds_to_first_step) {
  Json summary = log.final_figures();
  summary["interrupted"] = trainer.stop_reason().has_value();
  summary["seconds_to_first_step"] = seconds_to_first_step;
  summary["kernels"] = to_json(report_kernels(config, mesh.device()));
  summary["communication"] = communication();
  summary["ranks"] = gather_rank_reports(trainer.total_seconds(), mesh.device(), mesh.host_world());
  log.warn_of_skipped_steps();
  if (test) {
    summary["test"] = conclude_test(*test, trainer.tested_run(), summary["ranks"], log, mesh);
  } else {
    log.print_table();
  }
  conclude_speed(config, trainer.engine(), summary, mesh);
  if (mesh.host_world().rank() == 0) {
    write_json_file(folder.summary_path(), summary);
  }
  log_line(str("run folder: ", folder.path()));
}

// What --init-from names; nothing where none is given or the run is resumed, which has its own weights.
std::optional<CheckpointReader> open_initial(const RunConfig& config, bool is_resumed, const comm::MpiGroup& world) {
  if (config.checkpoint.init_from.empty() || is_resumed) {
    return std::nullopt;
  }
  return CheckpointReader(world, config.checkpoint.init_from);
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

// A trainer with the state that it starts from: of the checkpoint that `resumption` has in the end.
std::unique_ptr<Trainer> make_trainer(const RunConfig& config, comm::MpiSession& session, mesh::DeviceMesh& mesh,
                                      const DataSource& data, Resumption& resumption, RunLog& log,
                                      TrainerOptions options) {
  for (;;) {
    options.resumed = resumption.checkpoint();
    if (options.resumed != nullptr) {
      check_resumable(*options.resumed, config, data.described, session.world());
    }
    check_schedule(config, data, options.resumed, session.world());
    if (mesh.device().is_cpu()) {
      choose_host_kernel(config, HostLayer::Passes::kForwardAndBackward,
                         options.resumed != nullptr ? options.resumed->info().kernels : "", session.world());
    }
    auto trainer = std::make_unique<Trainer>(config, session.world(), mesh, data, log, options);
    std::optional<Error> damage;
    try {
      trainer->load();
    } catch (const comm::AgreedError& error) {
      if (options.resumed == nullptr || error.error_class() != ErrorClass::kBadData) {
        throw;
      }
      damage = error;
    }
    if (!damage) {
      resumption.settle();
      return trainer;
    }
    trainer.reset();  // half restored
    resumption.fall_back(*damage);
  }
}

// What a run that goes on where it had ended says; it writes nothing.
void say_that_nothing_is_left(const Trainer& trainer, const RunFolder& folder, const comm::MpiGroup& world) {
  log_line(str("nothing is left to do: the checkpoint is of step ", trainer.step(), " and the run has ",
               trainer.total_steps(), "; give a larger --steps or --epochs"));
  if (world.rank() == 0 && folder.is_continued() && !is_there(folder.summary_path())) {
    log_warning(str(folder.path(), " has no summary.json: the run was ended before it wrote one"));
  }
}

}  // namespace

int train(const RunConfig& config, comm::MpiSession& session) {
  const TimeLimit time_limit = TimeLimit::of_this_job(config.checkpoint.time_limit);
  const Timer since_start;
  const MemoryTracker::Attachment attachment;
  comm::set_memory_advice([config](const MemoryFailure& failure) { return memory_advice(config, failure); });
  watch_stop_signals(parse_signals(config.checkpoint.preempt_signals));
  comm::set_watch_limit(config.parallel.timeout);
  const auto placements = set_threads(config.parallel.threads, session.world());
  const c10::Device device = choose_device(config, session.world());
  check_model_memory(config, device, ModelPurpose::kTraining, session.world());
  set_kernel_options(config, device, session.world());
  if (device.is_cpu()) {
    report_placement(placements);
  }
  std::optional<comm::PhaseScope> phase;
  phase.emplace("building of the groups");
  mesh::DeviceMesh mesh(parallel_dims(config), session.world(), device, transport_options(config));
  const RunFolder folder(config, session.world());
  phase.emplace("opening of the data");
  const DataSource data = open_data(config, session.world());
  phase.emplace("start of the run");
  Resumption resumption(config, session.world());
  const auto initial = open_initial(config, resumption.checkpoint() != nullptr, session.world());
  RunLog log(data.train->channel_names(), config.log_interval);
  const std::string checkpoints = config.checkpoint.dir.empty() ? folder.checkpoints_path() : config.checkpoint.dir;
  std::optional<StepTest> test;
  if (config.test_steps > 0) {
    test.emplace(config.test_steps, device, session.place().node_rank == 0);
  }
  const auto trainer =
      make_trainer(config, session, mesh, data, resumption, log,
                   {checkpoints, nullptr, initial ? &*initial : nullptr, test ? &*test : nullptr, time_limit});
  if (trainer->is_over()) {
    say_that_nothing_is_left(*trainer, folder, session.world());
    return 0;
  }
  trainer->prepare();
  const CheckpointReader* const resumed = resumption.checkpoint();
  choose_kernels(config, trainer->micro_batch_sizes(), resumed != nullptr ? resumed->info().kernels : "", device,
                 session.world());
  MetricsLog metrics = folder.open(config, session.world());
  metrics.cut_after(resumed != nullptr ? resumed->info().step : -1);
  log.open(std::move(metrics));
  if (session.world().rank() == 0) {
    Json start = start_record(config, session);
    start["kernels"] = to_json(report_kernels(config, device));
    log.event(start);
  }
  if (resumed != nullptr) {
    note_resumption(*resumed, config, log);
  }
  note_kernels(folder, log, session.world());
  print_start(config, data, mesh, trainer->engine(), folder.path());
  const double seconds_to_first_step = since_start.seconds();
  phase.reset();
  trainer->run();
  phase.emplace("end of the run");
  finish(config, folder, log, *trainer, test, mesh, seconds_to_first_step);
  if (trainer->stop_reason()) {
    const bool is_saved = config.checkpoint.keep > 0;
    log_warning(str("stopped by ", *trainer->stop_reason(), " after step ", trainer->step(),
                    is_saved ? "; go on with --resume " + checkpoints
                             : str("; nothing was saved (", test ? "--test-steps" : "--keep-checkpoints none", ")")));
    return kComeAgain;
  }
  return 0;
}

}  // namespace vit_hybrid::train
