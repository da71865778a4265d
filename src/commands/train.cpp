// The command `train`: configuration, checks, and the training itself.
#include <algorithm>
#include <csignal>
#include <sstream>

#include "parallel/comm/launcher.h"
#include "parallel/comm/operation.h"
#include "parallel/pipeline/schedule.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/commands/command.h"
#include "src/config/config_text.h"
#include "src/config/load_run_config.h"
#include "src/config/model_options.h"
#include "src/config/sources.h"
#include "src/train/train.h"

namespace vit_hybrid::commands {

namespace {

using train::LoadedConfig;
using train::RunConfig;

LoadedConfig load(const std::vector<std::string>& words, const train::ReadFile& read_file) {
  return same_error_on_all_ranks(
      [&] { return train::load_run_config(words, options::process_environment(), read_file); });
}

constexpr const char* kPrinted[] = {"print-config", "print-schedule", "print-lr", "print-lr-every"};

std::string remarks_text(const LoadedConfig& loaded) {
  std::string out;
  for (const std::string& remark : train::all_remarks(loaded)) {
    out += "# " + shown(remark, std::string::npos) + "\n";
  }
  return out;
}

// Iterations of the run; without data those of epochs are known only where an option says how many samples there are.
int64_t planned_steps(const RunConfig& config) {
  const train::DataConfig& data = config.data;
  const int64_t samples = data.known_samples();
  if (config.schedule.steps > 0) {
    return config.schedule.steps;
  }
  if (samples == 0) {
    throw Error(ErrorClass::kUsage, "--print-lr opens no data, and --epochs needs their number of samples",
                "give --limit-nsamples N with that number, or --steps N");
  }
  const int64_t batch = config.global_batch_size;
  const int64_t of_epoch = data.drop_last ? samples / batch : (samples + batch - 1) / batch;
  if (of_epoch == 0) {
    throw Error(ErrorClass::kUsage, str("--drop-last leaves no step: an epoch has ", samples,
                                        " samples, and --global-batch-size is ", batch));
  }
  return train::steps_of_epochs(config.schedule.epochs, of_epoch);
}

std::string lr_text(const LoadedConfig& loaded) {
  return same_error_on_all_ranks([&] {
    const train::LrSchedule schedule = loaded.config.lr_schedule(planned_steps(loaded.config));
    if (const std::string problem = schedule.problem(); !problem.empty()) {
      throw Error(ErrorClass::kUsage, problem);
    }
    return train::lr_table(schedule, loaded.request.print_lr_every);
  });
}

// What is printed without training needs no MPI: it works where no job can be started.
int print_only(const std::vector<std::string>& words) {
  LoadedConfig loaded = load(words, train::read_local_file);
  RunConfig& config = loaded.config;
  const train::ParallelConfig& parallel = config.parallel;
  const train::RunRequest& request = loaded.request;
  const bool prints_schedule = request.print_schedule;
  const bool prints_lr = request.print_lr || request.print_lr_every > 0;
  // Without a launcher nothing says how many ranks there will be; a grid, and a batch, need one replica.
  const int num_replicas = parallel.dp > 0 ? parallel.dp : prints_schedule || prints_lr ? 1 : 0;
  const auto& launch = comm::own_launch();
  const int world_size = launch && launch->num_ranks > 1 ? launch->num_ranks : num_replicas * parallel.tp * parallel.pp;
  train::resolve(config, world_size);
  if (const auto shape = same_error_on_all_ranks([&] { return train::look_at_data(config); })) {
    train::follow_data(loaded, *shape);
  }
  refuse(train::all_problems(loaded, world_size));
  if (prints_schedule) {
    const auto schedule = pipeline::make_schedule(parallel.schedule, parallel.pp, config.num_micro_batches());
    print_once(pipeline::to_grid(schedule));
  } else if (prints_lr) {
    print_once(remarks_text(loaded) + lr_text(loaded));
  } else {
    print_once(remarks_text(loaded) + train::config_text(config));
  }
  return 0;
}

// All problems in one message, with those of the paths, which rank 0 looks at for all. Its class is that of a missing
// input only where nothing else is wrong.
void check(const LoadedConfig& loaded, const comm::MpiGroup& world) {
  auto problems = train::all_problems(loaded, world.size());
  const auto error_class = problems.empty() ? ErrorClass::kMissingInput : ErrorClass::kUsage;
  const std::string of_paths = world.rank() == 0 ? join(train::path_problems(loaded.config), "\n") : "";
  std::istringstream lines(world.broadcast(of_paths, 0));
  for (std::string line; std::getline(lines, line);) {
    problems.push_back(line);
  }
  refuse(problems, error_class);
}

void announce(const LoadedConfig& loaded) {
  const RunConfig& config = loaded.config;
  if (config.is_builtin_default) {
    log_line(str("no configuration and no data given: training the built-in default, a small ",
                 config.is_forecast() ? "forecast model on weather generated in memory"
                                      : "classifier on images painted in memory"));
  }
  log_lines(train::all_remarks(loaded));
}

std::string train_options(TableText text_of) {
  RunConfig config;
  train::RunRequest request;
  return text_of(train::run_option_table(config, request));
}

int run_train(const Invocation& invocation) {
  if (std::any_of(std::begin(kPrinted), std::end(kPrinted),
                  [&](const char* name) { return asks_for(invocation.words, name); })) {
    return print_only(invocation.words);
  }
  watch_stop_signals({SIGTERM, SIGINT});
  return run_job(invocation, [&](comm::MpiSession& session) {
    const comm::MpiGroup& world = session.world();
    LoadedConfig loaded =
        load(invocation.words, [&](const std::string& path) { return train::read_for_all(world, path); });
    train::resolve(loaded.config, world.size());
    {
      const comm::PhaseScope phase("looking at the data");
      if (const auto shape = train::look_at_data(loaded.config, world)) {
        train::follow_data(loaded, *shape);
      }
    }
    check(loaded, world);
    announce(loaded);
    return train::train(loaded.config, session);
  });
}

}  // namespace

std::vector<Command> train_commands() {
  return {{.name = "train",
           .summary = "train a model; runs when no command is named",
           .run = &run_train,
           .usage = "usage: vit_hybrid [train] [options]\n\nWithout a configuration and without data it trains a "
                    "small built-in default.\n",
           .introduction = "",
           .options_text = &train_options,
           .takes_megatron = true}};
}

}  // namespace vit_hybrid::commands
