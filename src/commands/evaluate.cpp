// The command `evaluate`: a trained model's figures on a data set.
#include "src/infer/evaluate.h"

#include "parallel/comm/mpi/mpi_session.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/commands/command.h"
#include "src/commands/model_command.h"
#include "src/config/run_option_groups.h"

namespace vit_hybrid::commands {

namespace {

// What the command line gives besides options of a run.
struct Request {
  train::ModelUse use;
  train::PredictionOptions predictions;
  int64_t limit_nsamples = 0;
};

options::OptionTable table_of(Request& request, train::RunConfig& config) {
  options::OptionTable table;
  train::add_use_options(table, request.use, "JSON file for the figures; without it they are only printed.");
  table.add({.name = "limit-nsamples",
             .value = options::integer(request.limit_nsamples, train::from_one(train::kMostCount, "none")),
             .help = "Use only the first samples of the data.",
             .unit = "samples"});
  table.add({.name = "predictions",
             .value = options::text(request.predictions.path, "file"),
             .help = "CSV or HDF5 file (.csv, .h5) for what a classifier predicts of each image: class and "
                     "probabilities. The data need no labels then."});
  table.add({.name = "predictions-top",
             .value = options::integer(request.predictions.top, train::from_one(train::kMostCount, "all")),
             .help = "Only the probabilities of the most probable classes, with their names.",
             .unit = "classes"});
  table.add({.name = "confusion",
             .value = options::text(request.predictions.confusion, "file"),
             .help = "CSV or JSON file (.csv, .json) for the confusion matrix of a classifier."});
  train::add_run_options(table, config, train::UsePurpose::kEvaluation);
  return table;
}

void check_predictions(const train::PredictionOptions& chosen) {
  const auto check = [](const char* option, const std::string& path, const std::string& one, const std::string& other) {
    if (!path.empty() && !path.ends_with(one) && !path.ends_with(other)) {
      throw Error(ErrorClass::kUsage,
                  str("--", option, " is '", path, "'; allowed: a name that ends with ", one, " or ", other));
    }
  };
  check("predictions", chosen.path, ".csv", ".h5");
  check("confusion", chosen.confusion, ".csv", ".json");
  if (chosen.top > 0 && chosen.path.empty()) {
    throw Error(ErrorClass::kUsage, "--predictions-top has no effect without --predictions FILE");
  }
}

std::string with_table(std::string (*text_of)(const options::OptionTable&)) {
  Request request;
  train::RunConfig config;
  return text_of(table_of(request, config));
}

}  // namespace

std::string evaluate_help() {
  return "usage: [mpirun -n N] vit_hybrid evaluate --checkpoint PATH --data PATH [options]\n\nLoss, RMSE and ACC by "
         "channel beside persistence, or top-1 and top-5, each sample counted once, in any layout.\nWhere not given, "
         "precision, statistics and batch size are those of the training.\n" +
         with_table(&options::help_text);
}

std::string evaluate_markdown() {
  return kOnlyCommandLine + with_table(&options::markdown_text);
}

int run_evaluate(const Invocation& invocation) {
  comm::MpiSession session(invocation.argc, invocation.argv);
  ModelCommand command(invocation, session);
  Request request;
  train::RunConfig shown;
  const options::OptionTable table = table_of(request, shown);
  const options::Source overrides = command.parse(table);
  command.require({{"checkpoint", request.use.checkpoint}, {"data", request.use.data}});
  same_error_on_all_ranks([&] { check_predictions(request.predictions); });
  train::CheckpointReader checkpoint(session.world(), request.use.checkpoint);
  train::RunConfig config = command.configure(checkpoint, request.use.data, overrides);
  command.check_paths(config, overrides);
  config.data.limit_nsamples_val = request.limit_nsamples;
  train::evaluate(config, request.use, checkpoint, session.world(), request.predictions);
  session.finalize();
  return 0;
}

}  // namespace vit_hybrid::commands
