// The commands that use a trained model: `evaluate`, its figures on a data set, and `forecast`, the model on its own
// output.
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/commands/command.h"
#include "src/config/run_options.h"
#include "src/infer/evaluate.h"
#include "src/infer/forecast.h"
#include "src/infer/lead_evaluation.h"
#include "src/infer/model_use.h"

namespace vit_hybrid::commands {

namespace {

using NamedValues = std::vector<std::pair<std::string, std::string>>;

// Fills the variables of the table from the command line, whose entries it returns.
options::Source parse(const options::OptionTable& table, const std::vector<std::string>& words) {
  options::Settings settings(table);
  options::Source entries = read_options(table, words, settings);
  refuse(settings.problems());
  return entries;
}

// Refuses options that must be given and are empty.
void require(const NamedValues& options) {
  std::vector<std::string> problems;
  for (const auto& [name, value] : options) {
    if (value.empty()) {
      problems.push_back(str("--", name, " must be given; see --help"));
    }
  }
  refuse(problems);
}

// The configuration that the checkpoint and the command line make.
train::RunConfig configure(const train::CheckpointReader& checkpoint, const std::string& data,
                           const options::Source& overrides, const comm::MpiGroup& world) {
  return same_error_on_all_ranks(
      [&] { return train::config_for_use(checkpoint.info(), checkpoint.path(), data, overrides, world.size()); });
}

// Refuses paths that are not there, but for the time means of the training, which are left out then; rank 0 looks at
// them. Collective.
void check_paths(train::RunConfig& config, const options::Source& overrides, const comm::MpiGroup& world) {
  if (train::has_time_means_of_training(config.data, overrides)) {
    int64_t is_there = ::access(config.data.time_means.c_str(), R_OK) == 0 ? 1 : 0;
    world.broadcast(&is_there, sizeof(is_there), 0);
    if (is_there == 0) {
      config.data.time_means.clear();
    }
  }
  comm::agreed_on_rank_0(world, [&] {
    if (const auto problems = train::missing_paths(config); !problems.empty()) {
      const std::string text = options::problem_list(problems);
      const bool of_training = text.find("--stats") != std::string::npos || text.find("--global") != std::string::npos;
      throw Error(ErrorClass::kMissingInput, text,
                  of_training ? "the statistics are the training's unless --stats is given" : "");
    }
  });
}

void add_climatology(options::OptionTable& table, std::string& path, const std::string& what) {
  table.add(
      {.name = "climatology",
       .value = options::text(path, "path"),
       .help = what +
               ": a file or store with a row for each day of a leap year at each hour of the data (data stats "
               "--climatology), or one of WeatherBench 2, whose variables have the dims hour and dayofyear; "
               "without it --time-means, else climatology.nc or time_means.npy of --stats, where they are there."});
}

// What the command line of `evaluate` gives besides options of a run, which are bound to `shown`.
struct EvaluateOptions {
  train::ModelUse use;
  train::PredictionOptions predictions;
  train::LeadOptions leads;
  int64_t limit_nsamples = 0;
  train::RunConfig shown;
};

options::OptionTable table_of(EvaluateOptions& chosen) {
  options::OptionTable table;
  train::add_use_options(table, chosen.use,
                         "JSON file (.json) for the figures, or of --lead-hours, --lead-steps and --scores a NetCDF-4 "
                         "file (.nc); without it they are only printed.");
  table.add({.name = "limit-nsamples",
             .value = options::integer(chosen.limit_nsamples, train::from_one(train::kMostCount, "none")),
             .help = "Use only the first samples of the data.",
             .unit = "samples"});
  table.add({.name = "lead-hours",
             .value = options::text(chosen.leads.hours, "hours"),
             .help =
                 "Score forecasts, the model on its own output, at these leads, with commas between them (6,24,120), "
                 "from every time of the data."});
  table.add({.name = "lead-steps",
             .value = options::text(chosen.leads.steps, "steps"),
             .help = "The same in applications of the model, for data whose times are no dates."});
  table.add({.name = "scores",
             .value = options::choice(chosen.leads.rules, {"reference", "weatherbench"}),
             .help =
                 "reference: the mean over the starts of each one's score, rows weighed by cos(latitude), in standard "
                 "deviations; weatherbench: the root after the mean over the starts, ACC a ratio of means, rows "
                 "weighed by their area, in the units of the data."});
  add_climatology(table, chosen.leads.climatology, "What anomalies at these leads are against");
  table.add({.name = "predictions",
             .value = options::text(chosen.predictions.path, "file"),
             .help = "CSV or HDF5 file (.csv, .h5) for what a classifier predicts of each image: class and "
                     "probabilities. The data need no labels then."});
  table.add({.name = "predictions-top",
             .value = options::integer(chosen.predictions.top, train::from_one(train::kMostCount, "all")),
             .help = "Only the probabilities of the most probable classes, with their names.",
             .unit = "classes"});
  table.add({.name = "confusion",
             .value = options::text(chosen.predictions.confusion, "file"),
             .help = "CSV or JSON file (.csv, .json) for the confusion matrix of a classifier."});
  train::add_run_options(table, chosen.shown, train::UsePurpose::kEvaluation);
  return table;
}

// Refuses names of files that tell no format that can be written.
void check_outputs(const EvaluateOptions& chosen) {
  const auto check = [](const char* option, const std::string& path, const std::vector<std::string>& endings,
                        const char* hint = "") {
    const auto is_end = [&](const std::string& ending) { return path.ends_with(ending); };
    if (!path.empty() && std::none_of(endings.begin(), endings.end(), is_end)) {
      throw Error(ErrorClass::kUsage,
                  str("--", option, " is '", path, "'; allowed: a name that ends with ", join(endings, " or ")), hint);
    }
  };
  if (chosen.leads.are_asked()) {
    check("out", chosen.use.out, {".json", ".nc"});
  } else {
    check("out", chosen.use.out, {".json"},
          "figures by lead (--lead-hours, --lead-steps, --scores weatherbench) may also be NetCDF-4 (.nc)");
  }
  check("predictions", chosen.predictions.path, {".csv", ".h5"});
  check("confusion", chosen.predictions.confusion, {".csv", ".json"});
  if (chosen.predictions.top > 0 && chosen.predictions.path.empty()) {
    throw Error(ErrorClass::kUsage, "--predictions-top has no effect without --predictions FILE");
  }
}

// Of scores by lead, which are a forecast's.
void refuse_predictions(const train::PredictionOptions& chosen) {
  for (const auto& [option, path] :
       {std::pair("--predictions", chosen.path), std::pair("--confusion", chosen.confusion)}) {
    if (!path.empty()) {
      throw Error(ErrorClass::kUsage, str(option,
                                          " is of classifiers, --lead-hours, --lead-steps and --scores are of "
                                          "forecasts"));
    }
  }
}

// What the command line of `forecast` gives, likewise.
struct ForecastRequest : train::ForecastOptions {
  train::RunConfig shown;
};

options::OptionTable table_of(ForecastRequest& chosen) {
  options::OptionTable table;
  train::add_use_options(table, chosen.use,
                         "NetCDF-4 file (.nc, .h5) or Zarr store (.zarr) for the forecast fields; the figures get its "
                         "name with .json. Must "
                         "be given.");
  table.begin_group("Forecast");
  table.add(
      {.name = "start",
       .value = options::integer(chosen.start, {0, train::kMostCount}),
       .help =
           "Time to start from, counted from 0 over the times of all files, of --valid-dates where they are given."});
  table.add({.name = "steps",
             .value = options::integer(chosen.steps, {1, train::kMostCount}),
             .help = "Lead times: how often the model is applied.",
             .unit = "times"});
  add_climatology(table, chosen.climatology, "What the anomalies of ACC are against");
  train::add_run_options(table, chosen.shown, train::UsePurpose::kForecast);
  return table;
}

int run_evaluate(const Invocation& invocation) {
  return run_job(invocation, [&](comm::MpiSession& session) {
    const comm::MpiGroup& world = session.world();
    EvaluateOptions chosen;
    const options::Source overrides = parse(table_of(chosen), invocation.words);
    require({{"checkpoint", chosen.use.checkpoint}, {"data", chosen.use.data}});
    same_error_on_all_ranks([&] { check_outputs(chosen); });
    const train::CheckpointReader checkpoint(world, chosen.use.checkpoint);
    train::RunConfig config = configure(checkpoint, chosen.use.data, overrides, world);
    if (chosen.leads.are_asked()) {
      same_error_on_all_ranks([&] {
        refuse_predictions(chosen.predictions);
        train::check_leads(config.model, config.data.roles, chosen.leads);
      });
    } else if (!chosen.leads.climatology.empty()) {
      refuse({"--climatology has no effect without --lead-hours, --lead-steps or --scores weatherbench"});
    }
    check_paths(config, overrides, world);
    config.data.limit_nsamples_val = chosen.limit_nsamples;
    if (chosen.leads.are_asked()) {
      train::evaluate_leads(config, chosen.use, chosen.leads, checkpoint, world);
      return 0;
    }
    train::evaluate(config, chosen.use, checkpoint, world, chosen.predictions);
    return 0;
  });
}

int run_forecast(const Invocation& invocation) {
  return run_job(invocation, [&](comm::MpiSession& session) {
    const comm::MpiGroup& world = session.world();
    ForecastRequest chosen;
    const options::Source overrides = parse(table_of(chosen), invocation.words);
    require({{"checkpoint", chosen.use.checkpoint}, {"data", chosen.use.data}, {"out", chosen.use.out}});
    const train::CheckpointReader checkpoint(world, chosen.use.checkpoint);
    train::RunConfig config = configure(checkpoint, chosen.use.data, overrides, world);
    same_error_on_all_ranks([&] { train::check_forecast(config, config.data.roles, chosen); });
    check_paths(config, overrides, world);
    train::forecast(config, chosen, checkpoint, world);
    return 0;
  });
}

}  // namespace

std::vector<Command> infer_commands() {
  return {
      {.name = "evaluate",
       .summary = "the figures of a trained model on a data set",
       .run = &run_evaluate,
       .usage =
           "usage: [mpirun -n N] vit_hybrid evaluate --checkpoint PATH --data PATH [options]\n\nLoss, RMSE and ACC by "
           "channel beside persistence, or top-1 and top-5, each sample counted once, in any layout;\n--lead-hours: "
           "scores of forecasts by lead, beside persistence and climatology.\nWhere not given, "
           "precision, statistics and batch size are those of the training.\n",
       .options_text = &options_text<EvaluateOptions, table_of>},
      {.name = "forecast",
       .summary = "a trained model on its own output",
       .run = &run_forecast,
       .usage =
           "usage: [mpirun -n N] vit_hybrid forecast --checkpoint PATH --data PATH --out FILE.nc [options]\n\nRuns the "
           "model on its own output. Writes the fields in the layout of the data, RMSE and ACC by lead time\nbeside "
           "persistence; launch/plot_forecast draws them. The ranks share the model: --tp x --pp.\n",
       .options_text = &options_text<ForecastRequest, table_of>}};
}

}  // namespace vit_hybrid::commands
