// The command `forecast`: a trained model on its own output.
#include "src/infer/forecast.h"

#include "parallel/comm/mpi/mpi_session.h"
#include "src/commands/command.h"
#include "src/commands/model_command.h"
#include "src/config/run_option_groups.h"

namespace vit_hybrid::commands {

namespace {

using train::ForecastOptions;

options::OptionTable table_of(ForecastOptions& chosen, train::RunConfig& config) {
  options::OptionTable table;
  train::add_use_options(
      table, chosen.use,
      "HDF5 file (.h5) for the forecast fields; the figures get its name with .json. Must be given.");
  table.begin_group("Forecast");
  table.add({.name = "start",
             .value = options::integer(chosen.start, {0, train::kMostCount}),
             .help = "Time to start from, counted from 0 over the times of all files."});
  table.add({.name = "steps",
             .value = options::integer(chosen.steps, {1, train::kMostCount}),
             .help = "Lead times: how often the model is applied.",
             .unit = "times"});
  train::add_run_options(table, config, train::UsePurpose::kForecast);
  return table;
}

std::string with_table(std::string (*text_of)(const options::OptionTable&)) {
  ForecastOptions chosen;
  train::RunConfig config;
  return text_of(table_of(chosen, config));
}

}  // namespace

std::string forecast_help() {
  return "usage: [mpirun -n N] vit_hybrid forecast --checkpoint PATH --data PATH --out FILE.h5 [options]\n\nRuns the "
         "model on its own output. Writes the fields in the layout of the data, RMSE and ACC by lead time\nbeside "
         "persistence; launch/plot_forecast draws them. The ranks share the model: --tp x --pp.\n" +
         with_table(&options::help_text);
}

std::string forecast_markdown() {
  return kOnlyCommandLine + with_table(&options::markdown_text);
}

int run_forecast(const Invocation& invocation) {
  comm::MpiSession session(invocation.argc, invocation.argv);
  ModelCommand command(invocation, session);
  ForecastOptions chosen;
  train::RunConfig shown;
  const options::OptionTable table = table_of(chosen, shown);
  const options::Source overrides = command.parse(table);
  command.require({{"checkpoint", chosen.use.checkpoint}, {"data", chosen.use.data}, {"out", chosen.use.out}});
  train::CheckpointReader checkpoint(session.world(), chosen.use.checkpoint);
  train::RunConfig config = command.configure(checkpoint, chosen.use.data, overrides);
  same_error_on_all_ranks([&] { train::check_forecast(config, chosen); });
  command.check_paths(config, overrides);
  train::forecast(config, chosen, checkpoint, session.world());
  session.finalize();
  return 0;
}

}  // namespace vit_hybrid::commands
