// The commands `data generate` and `data generate images`: data sets of our own, written by all ranks.
#include <cmath>

#include "data/generate/generate_images.h"
#include "data/generate/generate_weather.h"
#include "parallel/comm/mpi/mpi_session.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/commands/command.h"
#include "src/commands/console.h"
#include "src/config/sources.h"

namespace vit_hybrid::commands {

namespace {

using data::GenerateImagesOptions;
using data::GenerateWeatherOptions;
using options::flag;
using options::integer;
using options::number;
using options::text;

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

void add_common(options::OptionTable& table, std::string& out, bool& overwrite, uint64_t& seed, const char* files,
                const char* seed_help) {
  table.begin_group("General");
  table.add({.name = "out",
             .value = text(out, "folder"),
             .help = str("Folder to be made; it gets ", files, ". Must be given.")});
  table.add({.name = "overwrite",
             .value = flag(overwrite),
             .help = "Replace files of the same names in a folder that is not empty."});
  table.add({.name = "seed", .value = integer(seed, {0}), .help = seed_help});
}

options::OptionTable table_of(GenerateWeatherOptions& generate) {
  options::OptionTable table;
  add_common(table, generate.out, generate.overwrite, generate.seed, "train/, valid/ and stats/",
             "A year is a function of the seed, its number and the grid.");
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

options::OptionTable table_of(GenerateImagesOptions& generate) {
  options::OptionTable table;
  add_common(table, generate.out, generate.overwrite, generate.seed, "train.h5 and valid.h5",
             "An image is a function of the seed, its number, its size and the number of classes.");
  table.begin_group("Extent");
  table.add(
      {.name = "train-images", .value = integer(generate.train_images, {1, 100000000}), .help = "Images in train.h5."});
  table.add({.name = "valid-images",
             .value = integer(generate.valid_images, {0, 100000000}),
             .help = "Images in valid.h5; without any there is no such file."});
  table.add(
      {.name = "size", .value = integer(generate.size, {8, 1024}), .help = "Side of an image.", .unit = "pixels"});
  table.add({.name = "classes", .value = integer(generate.classes, {2, 30}), .help = "Classes of images."});
  return table;
}

template <class Options>
std::vector<std::string> parse(const std::vector<std::string>& words, Options& generate) {
  const options::OptionTable table = table_of(generate);
  options::Settings settings(table);
  settings.add(options::parse_command_line(table, words));
  settings.apply_all();
  warn_of_remarks(settings);
  auto problems = settings.problems();
  if (generate.out.empty()) {
    problems.push_back(str("--out FOLDER must be given: where the data are to be written"));
  }
  return problems;
}

// Starts MPI, reads the options on all ranks, and calls `write(options, world)`.
template <class Options, class Write>
int generate(const Invocation& invocation, const Write& write) {
  comm::MpiSession session(invocation.argc, invocation.argv);
  set_log_speaker(session.world().rank() == 0);
  agree_on_start(session.world(), invocation.words);
  Options chosen;
  const auto problems = same_error_on_all_ranks([&] { return parse(invocation.words, chosen); });
  if (!problems.empty()) {
    throw_on_all_ranks(Error(ErrorClass::kUsage, options::problem_list(problems)));
  }
  const Timer timer;
  write(chosen, session.world());
  log_line(str("wrote ", chosen.out, " in ", std::round(timer.seconds() * 100.0) / 100.0, " s"));
  session.finalize();
  return 0;
}

template <class Options>
std::string with_table(std::string (*text_of)(const options::OptionTable&)) {
  Options chosen;
  return text_of(table_of(chosen));
}

constexpr const char* kOnlyCommandLine = "\nThese are given on the command line only.\n";

}  // namespace

std::string data_generate_help() {
  return "usage: [mpirun -n N] vit_hybrid data generate --out FOLDER [options]\n\nIntegrates the rotating "
         "shallow-water "
         "equations and writes their fields in the layout of ERA5 training data.\nEvery rank takes its share of the "
         "years; the data do not depend on the number of ranks.\n" +
         with_table<GenerateWeatherOptions>(&options::help_text);
}

std::string data_generate_markdown() {
  return kOnlyCommandLine + with_table<GenerateWeatherOptions>(&options::markdown_text);
}

int run_data_generate(const Invocation& invocation) {
  return generate<GenerateWeatherOptions>(invocation, [](const auto& chosen, const comm::MpiGroup& world) {
    data::generate_weather(chosen, world, &log_line);
  });
}

std::string data_generate_images_help() {
  return "usage: [mpirun -n N] vit_hybrid data generate images --out FOLDER [options]\n\nPaints labelled images in the "
         "layout of image training data.\n" +
         with_table<GenerateImagesOptions>(&options::help_text);
}

std::string data_generate_images_markdown() {
  return kOnlyCommandLine + with_table<GenerateImagesOptions>(&options::markdown_text);
}

int run_data_generate_images(const Invocation& invocation) {
  return generate<GenerateImagesOptions>(invocation, [](const auto& chosen, const comm::MpiGroup& world) {
    data::generate_images(chosen, world, &log_line);
  });
}

}  // namespace vit_hybrid::commands
