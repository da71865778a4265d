// The command `data generate`: a weather data set from an own simulation, written by all ranks.
#include "data/generate/generate_weather.h"
#include "parallel/comm/mpi_session.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/commands/command.h"
#include "src/commands/console.h"
#include "src/train/options/sources.h"

namespace vit_hybrid::commands {

namespace {

using data::GenerateWeatherOptions;
using options::flag;
using options::integer;
using options::number;
using options::text;

struct Request {
  GenerateWeatherOptions generate;
  bool help = false;
};

void add_extent_of_data(options::OptionTable& table, GenerateWeatherOptions& generate) {
  table.begin_group("Extent");
  table.add({.name = "train-years", .value = integer(generate.train_years, {1, 1000}), .help = "Files in train/."});
  table.add({.name = "valid-years", .value = integer(generate.valid_years, {0, 1000}), .help = "Files in valid/."});
  table.add({.name = "first-year",
             .value = integer(generate.first_year, {0, 9999}),
             .help = "Name of the first file; those of valid/ follow those of train/."});
  table.add({.name = "steps-per-year",
             .value = integer(generate.steps_per_year, {2, 1000000}),
             .help = "Samples in a file.",
             .unit = "samples"});
  table.add(
      {.name = "channels",
       .value = integer(generate.channels, {1, 256}),
       .help = "Fields: u, v, height, vorticity, divergence, potential vorticity, kinetic energy, then tracers."});
  table.add({.name = "height", .value = integer(generate.height, {8, 16384}), .help = "Rows of a field (latitudes)."});
  table.add(
      {.name = "width", .value = integer(generate.width, {8, 16384}), .help = "Columns of a field (longitudes)."});
}

options::OptionTable table_of(Request& request) {
  GenerateWeatherOptions& generate = request.generate;
  options::OptionTable table;
  table.begin_group("General");
  table.add({.name = "out",
             .value = text(generate.out, "folder"),
             .help = "Folder to be made; it gets train/, valid/ and stats/. Must be given."});
  table.add({.name = "overwrite",
             .value = flag(generate.overwrite),
             .help = "Replace files of the same names in a folder that is not empty."});
  table.add({.name = "seed",
             .value = integer(generate.seed, {0}),
             .help = "A year is a function of the seed, its number and the grid."});
  table.add({.name = "help", .value = flag(request.help), .help = "Print this list, and end."});
  add_extent_of_data(table, generate);
  options::NumberRange hours;
  hours.least = 0.25;
  hours.most = 240.0;
  table.add({.name = "sample-interval-hours",
             .value = number(generate.sample_interval_hours, hours),
             .help = "Model time from one sample to the next.",
             .unit = "h"});
  return table;
}

std::vector<std::string> parse(const std::vector<std::string>& words, Request& request) {
  const options::OptionTable table = table_of(request);
  options::Settings settings(table);
  settings.add(options::parse_command_line(table, words));
  settings.apply_all();
  auto problems = settings.problems();
  if (request.generate.out.empty()) {
    problems.push_back(str("--out FOLDER must be given: the folder that is to hold train/, valid/ and stats/"));
  }
  return problems;
}

}  // namespace

std::string data_generate_help() {
  Request request;
  return "usage: [mpirun -n N] vit_hybrid data generate --out FOLDER [options]\n\nIntegrates the rotating "
         "shallow-water "
         "equations and writes their fields in the layout of ERA5 training data.\nEvery rank takes its share of the "
         "years; the data do not depend on the number of ranks.\n" +
         options::help_text(table_of(request));
}

std::string data_generate_markdown() {
  Request request;
  return "\nThese are given on the command line only.\n" + options::markdown_text(table_of(request));
}

int run_data_generate(const Invocation& invocation) {
  comm::MpiSession session(invocation.argc, invocation.argv);
  set_log_speaker(session.world().rank() == 0);
  agree_on_start(session.world(), invocation.words);
  Request request;
  const auto problems = same_error_on_all_ranks([&] { return parse(invocation.words, request); });
  if (!problems.empty()) {
    throw_on_all_ranks(Error(ErrorClass::kUsage, options::problem_list(problems)));
  }
  const Timer timer;
  data::generate_weather(request.generate, session.world(), [](const std::string& line) { log_line(line); });
  log_line(str("wrote ", request.generate.out, " in ", timer.seconds(), " s"));
  session.finalize();
  return 0;
}

}  // namespace vit_hybrid::commands
